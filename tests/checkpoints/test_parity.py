"""Every checkpoint computes what transformers computes, and is written back byte for byte."""

import json

import pytest
from safetensors.numpy import load_file

from checkpoint_cases import FOLDERS, Expected, difference, predicted
from keras_transformer import checkpoints
from keras_transformer.backend.keras_private import flatten_layers
from keras_transformer.checkpoints import ARCHITECTURES, Config

# Heads are the same for every encoder and decoder: those of two architectures, and one head of each other.
SHARED_HEADS = (
    "MultipleChoice",
    "NextSentencePrediction",
    "QuestionAnswering",
    "SequenceClassification",
    "TokenClassification",
)


def _repeats(folder):
    architecture, _, head = folder.name.rpartition("-")
    parts = (each.name.rpartition("-") for each in FOLDERS)
    has_other = any(name == architecture and each not in SHARED_HEADS for name, _, each in parts)
    return head in SHARED_HEADS and architecture not in ("bert", "llama") and has_other


# One of each kind, and those that store weights in a form of their own: the others are slow.
QUICK = {
    *("bert-MaskedLM", "clip-Model", "gemma2-CausalLM", "gpt2-LMHeadModel", "gpt_oss_mxfp4-CausalLM", "llama-CausalLM"),
    *("mamba2-CausalLM", "mixtral-CausalLM", "mt5-ConditionalGeneration", "phi3-CausalLM", "qwen2-CausalLM"),
    *("dinov2-ImageClassification", "hubert-CTC", "moonshine-ConditionalGeneration"),
}


def _marks(folder):
    if _repeats(folder):
        return pytest.mark.exhaustive
    return () if folder.name in QUICK else pytest.mark.slow


CASES = [pytest.param(folder, marks=_marks(folder), id=folder.name) for folder in FOLDERS]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    folder = request.param
    return folder, checkpoints.from_huggingface(folder, verbose=0), Expected(folder)


@pytest.mark.slow
def test_outputs_are_those_of_transformers(case):
    folder, model, expected = case
    relative, absolute = difference(predicted(model, expected.inputs), expected.outputs, expected.inputs)
    assert relative <= 1e-5
    assert absolute <= 2e-6


@pytest.mark.exhaustive
def test_greedy_texts_are_those_of_transformers(case):
    folder, model, expected = case
    if expected.generated is None:
        pytest.skip("it does not generate")
    new = expected.generated.shape[1]
    assert model.generate(expected.prompts, max_new_tokens=new) == expected.texts


def test_the_tensors_come_back_byte_for_byte(case, tmp_path):
    folder, model, _ = case
    checkpoints.to_huggingface(model, tmp_path / "again", verbose=0)
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "again"))
    assert sorted(before) == sorted(after)
    for name, first in before.items():
        second = after[name]
        assert (first.dtype, first.shape) == (second.dtype, second.shape), name
        assert first.tobytes() == second.tobytes(), name
    assert (tmp_path / "again" / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_every_architecture_has_a_checkpoint():
    covered = {json.loads((folder / "config.json").read_text())["model_type"] for folder in FOLDERS}
    assert covered == set(ARCHITECTURES)
    # A head once for each class: model types may be other names of one architecture.
    heads = {
        (architecture.__name__, head)
        for architecture in ARCHITECTURES.values()
        for head in architecture.heads
        if not any(_is(folder, architecture, head) for folder in FOLDERS)
    }
    assert heads == set(), "no checkpoint has these heads"


def _is(folder, architecture, head):
    config = json.loads((folder / "config.json").read_text())
    name = config["architectures"][0]
    return ARCHITECTURES[config["model_type"]] is architecture and (
        name.endswith(f"For{head}") or (name.endswith(head))
    )


@pytest.mark.parametrize(
    "name", ["bert-Model", "bloom-QuestionAnswering", "gpt2-Model", "llama-QuestionAnswering", "t5-Model"]
)
def test_an_epsilon_that_is_not_read_fails(name, monkeypatch):
    """The fixtures have epsilons that are nobody's default."""
    folder = next(folder for folder in FOLDERS if folder.name == name)
    number = Config.number

    def ignoring_epsilons(self, name, default=1e-5):
        return default if "eps" in name else number(self, name, default)

    monkeypatch.setattr(Config, "number", ignoring_epsilons)
    model, expected = checkpoints.from_huggingface(folder, verbose=0), Expected(folder)
    relative, _ = difference(predicted(model, expected.inputs), expected.outputs, expected.inputs)
    assert relative > 1e-4


@pytest.mark.parametrize(
    "name", ["bert-Model", "bloom-QuestionAnswering", "gpt2-Model", "llama-QuestionAnswering", "t5-Model"]
)
def test_dropouts_are_those_of_the_config(name):
    folder = next(folder for folder in FOLDERS if folder.name == name)
    values = json.loads((folder / "config.json").read_text())
    of_heads = ("classifier_dropout", "summary_first_dropout")
    wanted = {value for key, value in values.items() if "drop" in key and key not in of_heads}
    assert wanted
    assert wanted <= dropouts(checkpoints.from_huggingface(folder, verbose=0))


def dropouts(model):
    """The rates of all layers."""
    layers = flatten_layers(model)
    return {
        getattr(layer, name) for layer in layers for name in ("rate", "dropout", "_dropout") if is_rate(layer, name)
    }


def is_rate(layer, name):
    return isinstance(getattr(layer, name, None), float)
