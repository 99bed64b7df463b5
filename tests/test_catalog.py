"""The catalog is what the dicts and the docstrings say."""

import json

from keras_transformer import attention, models, recurrence
from keras_transformer import catalog as catalog
from keras_transformer.checkpoints import ARCHITECTURES
from keras_transformer.export.commands import main as cli


def rows(section):
    return {row[next(iter(row))]: row for row in catalog.tables()[section]}


def test_caches_and_forms_are_those_of_the_classes():
    found = rows("mechanisms")
    assert set(found) == set(attention.MECHANISMS)
    assert (found["softmax"]["cache"], found["softmax"]["forms"]) == ("grows", "two-sided, causal, cross, any mask")
    assert (found["local"]["cache"], found["local"]["forms"]) == ("fixed size", "two-sided, causal")
    assert found["bigbird"]["cache"] == "none"
    assert rows("recurrences")["retention"] == {
        "name": "retention",
        "forms": "causal",
        "cache": "fixed size",
        "what it is": catalog.summary(recurrence.RECURRENCES["retention"]),
        "reference": "Sun et al., Retentive Network, arXiv 2307.08621",
    }


def test_models_say_what_they_take():
    found = rows("models")
    assert set(found) == set(models.MODELS)
    assert found["vit"]["takes"] == "images"
    assert found["encoder"]["takes"] == "token_ids, padding_mask"


def test_checkpoints_list_their_heads():
    found = rows("checkpoints")
    assert set(found) == set(ARCHITECTURES)
    assert "QuestionAnswering" in found["bert"]["heads"]


def test_every_part_says_what_it_is():
    nameless = [row for section in catalog.tables().values() for row in section if not all([*row.values()][:1])]
    wordless = [row for section in catalog.tables().values() for row in section if not row.get("what it is", "x")]
    assert nameless == wordless == []


def test_the_command_prints_a_section(capsys):
    assert cli.main(["catalog", "mechanisms", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mechanisms": catalog.tables()["mechanisms"]}
    assert cli.main(["catalog", "models"]) == 0
    assert capsys.readouterr().out.startswith(f"models ({len(models.MODELS)})\nname ")
    assert cli.main(["catalog", "motors"]) == 1
    assert "no section 'motors'" in capsys.readouterr().err
