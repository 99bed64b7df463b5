"""The top of the page of every mechanism, mixer, recurrence, position and model: its texts and its code."""

import importlib

import pytest

from markup import PARTS
from reference_pages import LEADING
from uses import USES, snippets

PAGES = [(folder, name) for folder, parts in PARTS.items() for name in parts]
LAYERS = [(folder, name) for folder, name in PAGES if folder != "models"]


def test_reference_begins_with_thirty_names_that_exist():
    names = [(package, name) for packages in LEADING.values() for package, each in packages.items() for name in each]
    assert len(names) == len(set(names)) == 30
    for package, name in names:
        assert name in importlib.import_module(f"keras_transformer.{package}").__all__


def test_every_page_says_when_to_use_its_part_and_no_other_is_named():
    assert {folder: set(parts) for folder, parts in PARTS.items()} == {
        folder: set(uses) for folder, uses in USES.items()
    }


@pytest.mark.parametrize(("folder", "name"), PAGES)
def test_texts_are_sentences_of_their_own(folder, name):
    use = USES[folder][name]
    for text in (use["use"], use["avoid"]):
        assert len(text.split()) >= 1
        assert text[0].isupper()
        assert text.endswith(".")
        assert text not in [each[key] for each in USES[folder].values() if each is not use for key in ("use", "avoid")]


@pytest.mark.parametrize(("folder", "name"), LAYERS)
def test_code_of_a_layer_runs(folder, name):
    for code in snippets(folder, name):
        assert len(code.splitlines()) <= 12
        exec(compile(code, name, "exec"), {})


@pytest.mark.parametrize(("folder", "name"), [each for each in PAGES if each not in LAYERS])
def test_code_of_a_model_names_what_exists(folder, name):
    *_, made = snippets(folder, name)
    names = {"__name__": "page"}
    # A small model of each kind is made by its own docstring's test; here it is only looked up.
    for line in made.splitlines():
        if line.startswith(("from ", "import ")):
            exec(line, names)
    assert f"{PARTS[folder][name].__name__}(" in made
    assert f'export(model, "{name}")' in made
