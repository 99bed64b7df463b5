"""Every example in a docstring runs, and every public class and function has what the house asks of its docstring."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import keras_transformer
from keras_transformer import (
    attention,
    audio,
    blocks,
    feedforward,
    generation,
    models,
    positions,
    recurrence,
    tasks,
    text,
    vision,
)

ROOT = Path(keras_transformer.__file__).parent
MODULES = sorted(
    ".".join(("keras_transformer", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.py")
    if path.name != "__init__.py" and not path.is_relative_to(ROOT / "export")
)
PUBLIC = [
    attention.MultiHeadAttention,
    attention.attention_maps,
    *attention.MECHANISMS.values(),
    *positions.ATTENTION_POSITIONS.values(),
    *positions.EMBEDDING_POSITIONS.values(),
    *feedforward.FEEDFORWARDS.values(),
    *recurrence.RECURRENCES.values(),
    blocks.EncoderBlock,
    blocks.DecoderBlock,
    blocks.CrossDecoderBlock,
    attention.SharedKeyValue,
    attention.CrossDecoderAttention,
    vision.PatchEmbedding,
    vision.ImageProcessor,
    audio.LogMel,
    *models.MODELS.values(),
    models.Stepwise,
    *tasks.TASKS.values(),
    *text.TOKENIZERS.values(),
    *generation.SAMPLERS.values(),
    generation.Speculative,
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    failures, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failures == 0


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__name__)
def test_docstring_is_whole(thing):
    text = inspect.getdoc(thing)
    for section in ("Args:", "Returns:", "Raises:", "Example:", ">>>"):
        assert section in text, f"{thing.__name__} lacks {section}"
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert parameter.name in text, f"{thing.__name__} does not explain {parameter.name}"


@pytest.mark.parametrize("scoring", attention.SCORINGS.values(), ids=lambda thing: thing.__name__)
def test_scoring_names_its_source(scoring):
    assert "Reference: " in inspect.getdoc(scoring)
