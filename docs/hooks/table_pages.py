"""A page for each architecture, and the tables of everything else."""

import importlib
import inspect

from markup import PARTS, documented, facts, link, linked, parameters_table, table

from keras_transformer import catalog as catalog
from keras_transformer import models
from keras_transformer.checkpoints import ARCHITECTURES

_COUNTED = parameters_table.known()
# Sections of the catalog whose rows have pages.
_PAGED = ("mechanisms", "mixers", "recurrences", "positions", "models")


def model_pages():
    """Returns (path to content, navigation)."""
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
    """Returns (path to content, navigation)."""
    parts = ["# Everything there is", "What `keras-transformer catalog` prints, from the same functions."]
    for section, rows in catalog.tables().items():
        column = next(iter(rows[0]))
        shown = [
            {key: linked(text) if key == "reference" else text for key, text in row.items()}
            | {column: link(row[column], section) if section in _PAGED else f"`{row[column]}`"}
            for row in rows
        ]
        parts += [f"## {section.capitalize()}", table(shown)]
    return {"catalog.md": "\n\n".join(parts)}, "catalog.md"


_INTRODUCTION = """One function each, which returns an ordinary Functional Keras model up to its last norm; `tasks` puts
heads on them. Wherever a size is taken by name, a `Size` of one's own is taken too."""


def _page(name, build, row, checkpoints):
    parts = [f"# {build.__name__}", facts([
        ("name", f"`{name}`, in `models.MODELS`"),
        ("takes", row["takes"]),
        ("reference", linked(row["reference"])),
        ("checkpoints", "; ".join(f"`{kind}`: {heads or 'no heads'}" for kind, heads in checkpoints)),
    ])]  # fmt: skip
    if sizes := _sizes(name, build):
        parts += ["## Sizes", table(sizes)]
        vocabulary = inspect.signature(build).parameters.get("vocabulary_size")
        known = vocabulary and f", with a vocabulary of {_default(vocabulary, parameters_table.VOCABULARY):,}"
        parts.append(f"Parameters are counted without a head{known or ''}.")
    return "\n\n".join([*parts, documented(build)])


def _sizes(name, build):
    """One row for each named size."""
    counted = parameters_table.counts(name, build, _COUNTED)
    sizes = parameters_table.sizes(build)
    # A file of several models may have sizes that this one has not.
    rows = [
        {"size": f"`{size}`", "parameters": _in_words(count), **_measures(sizes[size])}
        for size, count in counted.items()
        if count or not any(counted.values())
    ]
    if not any(counted.values()):
        rows = [{key: text for key, text in row.items() if key != "parameters"} for row in rows]
    # Sizes of one model may have measures that others have not.
    columns = dict.fromkeys(column for row in rows for column in row)
    return [{column: row.get(column, "") for column in columns} for row in rows]


def _default(parameter, otherwise):
    """The default of a parameter, where it is a number."""
    return parameter.default if isinstance(parameter.default, int) else otherwise


def _measures(size):
    """The fields of a size, those of a size in it among them."""
    if not hasattr(size, "_asdict"):
        return {}
    found = {}
    for field, value in size._asdict().items():
        found |= _measures(value) if hasattr(value, "_asdict") else {field: value}
    return found


def _in_words(count):
    """Billions or millions of parameters."""
    if not count:
        return ""
    return f"{count / 1e9:,.2f} G" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def _checkpoints():
    """Model function to the kinds of checkpoints that become it, with their heads."""
    found = {}
    for kind, architecture in ARCHITECTURES.items():
        for build in _named(architecture):
            found.setdefault(build, []).append((kind, ", ".join(architecture.heads)))
    return found


def _named(architecture):
    """The model functions that the backbone of an architecture calls, by itself or by a function of its file."""
    module = importlib.import_module(architecture.backbone.__module__)
    names = set(architecture.backbone.__code__.co_names)
    for name in list(names):
        helper = getattr(module, name, None)
        if inspect.isfunction(helper) and helper.__module__ == module.__name__:
            names |= set(helper.__code__.co_names)
    rooms = [module, models] if "models" in names else [module]
    called = [getattr(room, name, None) for name in names for room in rooms]
    return [build for build in models.MODELS.values() if build in called]
