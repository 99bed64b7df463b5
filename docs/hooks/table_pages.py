"""Generates a page for each model, and the page of the catalog."""

import importlib
import inspect

from keras_transformer import catalog as catalog
from keras_transformer import models
from keras_transformer.checkpoints import ARCHITECTURES
from markup import PARTS, documented, facts, link, linked, parameters_table, table
from uses import top

_COUNTED = parameters_table.known()
# Sections of the catalog whose rows have pages.
_PAGED = ("mechanisms", "mixers", "recurrences", "positions", "models")


def model_pages():
    """Returns a dict of path to content, and the navigation."""
    pages, entries = {}, []
    readers = _checkpoints()
    rows = {row["name"]: row for row in catalog.tables()["models"]}
    for name, build in PARTS["models"].items():
        pages[f"models/{name}.md"] = _page(name, build, rows[name], readers.get(build, []))
        entries.append({build.__name__: f"models/{name}.md"})
    listed = [
        row | {"name": link(row["name"], "models", "models"), "reference": linked(row["reference"])}
        for row in rows.values()
    ]
    pages["models/index.md"] = "\n\n".join(["# Models", _INTRODUCTION, table(listed)])
    return pages, ["models/index.md", *entries]


def table_pages():
    """Returns a dict of path to content, and the navigation."""
    parts = ["# Catalog", "The output of `keras-transformer catalog`."]
    for section, rows in catalog.tables().items():
        column = next(iter(rows[0]))
        shown = [
            {key: linked(text) if key == "reference" else text for key, text in row.items()}
            | {column: link(row[column], section) if section in _PAGED else f"`{row[column]}`"}
            for row in rows
        ]
        parts += [f"## {section.capitalize()}", table(shown)]
    return {"catalog.md": "\n\n".join(parts)}, "catalog.md"


_INTRODUCTION = """Each model is a function that returns a Functional Keras model up to its last normalization; `tasks` adds
heads. A size is a name or a `Size`. [Which model?](../which_model.md) helps to choose.

Repositories that the pages name must contain `model.safetensors`: pickle files are never opened."""


def _page(name, build, row, checkpoints):
    parts = [f"# {build.__name__}", catalog.summary(build), top("models", name), facts([
        ("name", f"`{name}`, in `models.MODELS`"),
        ("takes", row["takes"]),
        ("reference", linked(row["reference"])),
        ("checkpoints", "; ".join(f"`{kind}`: {heads or 'no heads'}" for kind, heads in checkpoints)),
    ])]  # fmt: skip
    if sizes := _sizes(name, build):
        parts += ["## Sizes", table(sizes)]
        vocabulary = inspect.signature(build).parameters.get("vocabulary_size")
        parts.append(f"Parameter counts exclude the head{_of_vocabulary(vocabulary)}.")
    return "\n\n".join([*parts, documented(build)])


def _sizes(name, build):
    """Returns one row per named size."""
    counted = parameters_table.counts(name, build, _COUNTED)
    sizes = parameters_table.sizes(build)
    # A file of several models may contain sizes of another model.
    rows = [
        {"size": f"`{size}`", "parameters": _in_words(count), **_measures(sizes[size])}
        for size, count in counted.items()
        if count or not any(counted.values())
    ]
    if not any(counted.values()):
        rows = [{key: text for key, text in row.items() if key != "parameters"} for row in rows]
    # Sizes of one model may have different fields.
    columns = dict.fromkeys(column for row in rows for column in row)
    return [{column: row.get(column, "") for column in columns} for row in rows]


def _of_vocabulary(parameter):
    """Returns the vocabulary that counts are for, from the parameter of a model function, if it has one."""
    if parameter is None:
        return ""
    if parameter.default is None:
        return ", with the vocabulary of the published checkpoint"
    known = isinstance(parameter.default, int)
    return f", with a vocabulary of {parameter.default if known else parameters_table.VOCABULARY:,}"


def _measures(size):
    """Returns the fields of a size, including those of nested sizes."""
    if not hasattr(size, "_asdict"):
        return {}
    found = {}
    for field, value in size._asdict().items():
        found |= _measures(value) if hasattr(value, "_asdict") else {field: value}
    return found


def _in_words(count):
    """Returns a number of parameters in billions or millions."""
    if not count:
        return ""
    return f"{count / 1e9:,.2f} G" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def _checkpoints():
    """Returns a dict of model function to the kinds of checkpoints that load into it, with their heads."""
    found = {}
    for kind, architecture in ARCHITECTURES.items():
        for build in _named(architecture):
            found.setdefault(build, []).append((kind, ", ".join(architecture.heads)))
    return found


def _named(architecture):
    """Returns the model functions that the backbone of an architecture calls, directly or through its module."""
    module = importlib.import_module(architecture.backbone.__module__)
    names = set(architecture.backbone.__code__.co_names)
    for name in list(names):
        helper = getattr(module, name, None)
        if inspect.isfunction(helper) and helper.__module__ == module.__name__:
            names |= set(helper.__code__.co_names)
    modules = [module, models] if "models" in names else [module]
    called = [getattr(each, name, None) for name in names for each in modules]
    return [build for build in models.MODELS.values() if build in called]
