"""What there is, read from the dicts, the classes and their docstrings: nothing here is kept by hand."""

import inspect
import re

from keras_transformer import attention, blocks, feedforward, generation, models, positions, recurrence, tasks, text
from keras_transformer.checkpoints import ARCHITECTURES

_FORMS = {"bidirectional": "two-sided", "causal": "causal", "cross": "cross", "attention_mask": "any mask"}


def tables():
    """Every section of the catalog.

    Returns:
        dict of the name of a section to its rows: dicts of column to text, all with the same columns.

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
    }


def summary(thing):
    """The first sentence of a docstring, which often is the formula, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def cost(thing):
    """What the docstring says of growth."""
    words = " ".join(inspect.getdoc(thing).split("Args:")[0].split())
    sentences = re.split(r"(?<=[.;:]) (?=[A-Z(])", words)
    return " ".join(each for each in sentences if re.search(r"\bgrows?\b", each))


def reference(thing):
    """Paper and number of the first reference."""
    found = re.search(r"References?: (.*)", " ".join((inspect.getdoc(thing) or "").split()))
    if not found:
        return ""
    return re.match(r".*?(?:arXiv:? ?\d{4}\.\d{4,5}|\. )", found[1] + ". ")[0].rstrip(". ")


def forms(supports):
    """Directions, and what else can be asked for, of what a layer supports."""
    return ", ".join(word for what, word in _FORMS.items() if what in supports)


def _rows(choices):
    return [
        {"name": name, "what it is": summary(thing), "reference": reference(thing)} for name, thing in choices.items()
    ]


def _model_row(name, build):
    returns = (inspect.getdoc(build) or "").partition("Returns:")[2].partition("Raises:")[0]
    takes = dict.fromkeys(re.findall(r'"(\w+)"', returns.partition(" to ")[0]))
    return {"name": name, "takes": ", ".join(takes), "what it is": summary(build), "reference": reference(build)}


def _checkpoint_row(name, architecture):
    return {"model_type": name, "heads": ", ".join(architecture.heads), "reference": summary(architecture)}


def _mixer_row(name, cls):
    # What depends on arguments is asked of an instance; what is made of other layers does what these do.
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


def _example(cls):
    """A small layer, where the arguments that have no default are numbers; else None."""
    parameters = inspect.signature(cls).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    try:
        return cls(**dict.fromkeys(required, 4))
    except ValueError:
        return None
