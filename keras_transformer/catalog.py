"""The catalog of models and layers, generated from the dicts, the classes and their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

# Each of them is imported when its first attribute is read.
import keras_transformer as package

if TYPE_CHECKING:
    import keras

    from keras_transformer.checkpoints import Architecture

_Row = dict[str, str]

_FORMS = {"bidirectional": "two-sided", "causal": "causal", "cross": "cross", "attention_mask": "any mask"}


def tables(sections: Iterable[str] | None = None) -> dict[str, list[_Row]]:
    """Returns sections of the catalog.

    Args:
        sections: names in `SECTIONS`, or None for all.

    Returns:
        dict of the name of a section to its rows: dicts of column to text, with the same columns.

    Example:

    >>> [row["forms"] for row in tables(["mechanisms"])["mechanisms"] if row["name"] == "linear"]
    ['two-sided, causal, cross']
    """
    return {name: SECTIONS[name]() for name in (SECTIONS if sections is None else sections)}


def summary(thing: object) -> str:
    """Returns the first paragraph of the docstring of a thing, often the formula, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def cost(thing: object) -> str:
    """Returns the sentences of the docstring of a thing about the growth of time and memory."""
    words = " ".join((inspect.getdoc(thing) or "").split("Args:")[0].split())
    sentences = re.split(r"(?<=[.;:]) (?=[A-Z(])", words)
    return " ".join(each for each in sentences if re.search(r"\bgrows?\b", each))


def reference(thing: object) -> str:
    """Returns the paper and arXiv number of the first reference in the docstring of a thing."""
    found = re.search(r"References?: (.*)", " ".join((inspect.getdoc(thing) or "").split()))
    if not found:
        return ""
    first = re.match(r".*?(?:arXiv:? ?\d{4}\.\d{4,5}|\. )", found[1] + ". ")
    return first[0].rstrip(". ") if first else ""


def forms(supports: Collection[str]) -> str:
    """Returns the forms of attention that a layer supports."""
    return ", ".join(word for what, word in _FORMS.items() if what in supports)


def _rows(choices: Mapping[str, object]) -> list[_Row]:
    return [
        {"name": name, "what it is": summary(thing), "reference": reference(thing)} for name, thing in choices.items()
    ]


def _mixers() -> list[_Row]:
    return [_mixer_row(name, cls) for name, cls in package.attention.MIXERS.items() if name != "multi_head"]


def _model_row(name: str, build: Any) -> _Row:
    returns = (inspect.getdoc(build) or "").partition("Returns:")[2].partition("Raises:")[0]
    takes = dict.fromkeys(re.findall(r'"(\w+)"', returns.partition(" to ")[0]))
    return {"name": name, "takes": ", ".join(takes), "what it is": summary(build), "reference": reference(build)}


def _checkpoint_row(name: str, architecture: type[Architecture]) -> _Row:
    return {"model_type": name, "heads": ", ".join(architecture.heads), "reference": summary(architecture)}


def _mixer_row(name: str, cls: type[keras.layers.Layer]) -> _Row:
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


def _example(cls: type[keras.layers.Layer]) -> keras.layers.Layer | None:
    """Returns a small layer, if the required arguments are numbers; else None."""
    parameters = inspect.signature(cls).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    try:
        return cls(**dict.fromkeys(required, 4))
    except ValueError:
        return None


# The sections by name; their rows are made when they are called, which imports what they describe.
SECTIONS: dict[str, Callable[[], list[_Row]]] = {
    "models": lambda: [_model_row(name, build) for name, build in package.models.MODELS.items()],
    "checkpoints": lambda: [_checkpoint_row(name, cls) for name, cls in package.checkpoints.ARCHITECTURES.items()],
    "mechanisms": lambda: [_mixer_row(name, cls) for name, cls in package.attention.MECHANISMS.items()],
    "mixers": _mixers,
    "recurrences": lambda: [_mixer_row(name, cls) for name, cls in package.recurrence.RECURRENCES.items()],
    "positions": lambda: _rows(package.positions.EMBEDDING_POSITIONS | package.positions.ATTENTION_POSITIONS),
    "scorings": lambda: _rows(package.attention.SCORINGS),
    "feedforwards": lambda: _rows(package.feedforward.FEEDFORWARDS),
    "residuals": lambda: _rows(package.blocks.RESIDUALS),
    "tasks": lambda: _rows(package.tasks.TASKS),
    "tokenizers": lambda: _rows(package.text.TOKENIZERS),
    "samplers": lambda: _rows(package.generation.SAMPLERS),
    "diffusion_processes": lambda: _rows(package.diffusion.PROCESSES),
    "diffusion_samplers": lambda: _rows(package.diffusion.SAMPLERS),
}
