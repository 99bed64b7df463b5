"""The catalog of models and layers, generated from the dicts, the classes and their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any

from keras_transformer import (
    attention,
    blocks,
    diffusion,
    feedforward,
    generation,
    models,
    positions,
    recurrence,
    tasks,
    text,
)
from keras_transformer.checkpoints import ARCHITECTURES, Architecture

_Row = dict[str, str]

_FORMS = {"bidirectional": "two-sided", "causal": "causal", "cross": "cross", "attention_mask": "any mask"}


def tables() -> dict[str, list[_Row]]:
    """Returns all sections of the catalog.

    Returns:
        dict of the name of a section to its rows: dicts of column to text, with the same columns.

    Example:

    >>> [row["forms"] for row in tables()["mechanisms"] if row["name"] == "linear"]
    ['two-sided, causal, cross']
    """
    mixers = {name: cls for name, cls in attention.MIXERS.items() if name != "multi_head"}
    return {
        "models": [_model_row(name, build) for name, build in models.MODELS.items()],
        "checkpoints": [_checkpoint_row(name, cls) for name, cls in ARCHITECTURES.items()],
        "mechanisms": [_mixer_row(name, cls) for name, cls in attention.MECHANISMS.items()],
        "mixers": [_mixer_row(name, cls) for name, cls in mixers.items()],
        "recurrences": [_mixer_row(name, cls) for name, cls in recurrence.RECURRENCES.items()],
        "positions": _rows(positions.EMBEDDING_POSITIONS | positions.ATTENTION_POSITIONS),
        "scorings": _rows(attention.SCORINGS),
        "feedforwards": _rows(feedforward.FEEDFORWARDS),
        "residuals": _rows(blocks.RESIDUALS),
        "tasks": _rows(tasks.TASKS),
        "tokenizers": _rows(text.TOKENIZERS),
        "samplers": _rows(generation.SAMPLERS),
        "diffusion_processes": _rows(diffusion.PROCESSES),
        "diffusion_samplers": _rows(diffusion.SAMPLERS),
    }


def summary(thing: Any) -> str:
    """Returns the first paragraph of a docstring, often the formula, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def cost(thing: Any) -> str:
    """Returns the sentences of a docstring about the growth of time and memory."""
    words = " ".join((inspect.getdoc(thing) or "").split("Args:")[0].split())
    sentences = re.split(r"(?<=[.;:]) (?=[A-Z(])", words)
    return " ".join(each for each in sentences if re.search(r"\bgrows?\b", each))


def reference(thing: Any) -> str:
    """Returns the paper and arXiv number of the first reference."""
    found = re.search(r"References?: (.*)", " ".join((inspect.getdoc(thing) or "").split()))
    if not found:
        return ""
    first = re.match(r".*?(?:arXiv:? ?\d{4}\.\d{4,5}|\. )", found[1] + ". ")
    return first[0].rstrip(". ") if first else ""


def forms(supports: Collection[str]) -> str:
    """Returns the forms of attention that a layer supports."""
    return ", ".join(word for what, word in _FORMS.items() if what in supports)


def _rows(choices: Mapping[str, Any]) -> list[_Row]:
    return [
        {"name": name, "what it is": summary(thing), "reference": reference(thing)} for name, thing in choices.items()
    ]


def _model_row(name: str, build: Any) -> _Row:
    returns = (inspect.getdoc(build) or "").partition("Returns:")[2].partition("Raises:")[0]
    takes = dict.fromkeys(re.findall(r'"(\w+)"', returns.partition(" to ")[0]))
    return {"name": name, "takes": ", ".join(takes), "what it is": summary(build), "reference": reference(build)}


def _checkpoint_row(name: str, architecture: type[Architecture]) -> _Row:
    return {"model_type": name, "heads": ", ".join(architecture.heads), "reference": summary(architecture)}


def _mixer_row(name: str, cls: Any) -> _Row:
    # A property depends on the arguments, so it is read from an instance; composed layers support what their parts do.
    layer = _example(cls) if isinstance(cls.supports, property) else cls
    supported, cache = "those of its parts", "those of its parts"
    if layer is not None:
        supported = forms(layer.supports)
        cache = ("grows" if layer.cache_is_rewindable else "fixed size") if "cache" in layer.supports else "none"
    return {
        "name": name,
        "forms": supported,
        "cache": cache,
        "what it is": summary(cls),
        "reference": reference(cls),
    }


def _example(cls: Any) -> Any:
    """Returns a small layer, if the required arguments are numbers; else None."""
    parameters = inspect.signature(cls).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    try:
        return cls(**dict.fromkeys(required, 4))
    except ValueError:
        return None
