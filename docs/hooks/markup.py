"""Helpers shared by the generated pages."""

import importlib
import inspect
import pathlib
import re
import sys

from keras_transformer import attention, positions, recurrence
from keras_transformer.models import MODELS

ROOT = pathlib.Path(__file__).parents[2]
for folder in ("benchmarks", "tests/contract"):
    sys.path.append(str(ROOT / folder))
benchmarks_page, cases, mechanisms_page, parameters_table = map(
    importlib.import_module, ("benchmarks_page", "cases", "mechanisms_page", "parameters_table")
)

# Folder of pages -> name -> class or model function.
PARTS = {
    "mechanisms": attention.MECHANISMS,
    "mixers": {name: cls for name, cls in attention.MIXERS.items() if name != "multi_head"},
    "recurrences": recurrence.RECURRENCES,
    "positions": positions.ATTENTION_POSITIONS | positions.EMBEDDING_POSITIONS,
    "models": MODELS,
}
# Class or function -> its page.
PAGES = {part: f"{folder}/{name}.md" for folder, parts in PARTS.items() for name, part in parts.items()}


def path_of(thing):
    """Returns the dotted path of a class or function, for mkdocstrings."""
    return f"{thing.__module__}.{thing.__qualname__}"


def documented(thing):
    """Returns the mkdocstrings directive for a class or function."""
    return f"::: {path_of(thing)}"


def table(rows):
    """Returns rows, dicts of column to text, as a Markdown table."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([_cell(row[column]) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def facts(rows):
    """Returns pairs of name and text as a table without a header."""
    return table([{" ": f"**{name}**", "  ": text} for name, text in rows if text])


def linked(text):
    """Returns a text with its arXiv numbers as links."""
    return re.sub(r"arXiv:? ?(\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def link(name, folder, here=""):
    """Returns the name of a layer or model as a link to its page, from a page in the folder `here`."""
    start = "" if here == folder else f"{'../' if here else ''}{folder}/"
    return f"[`{name}`]({start}{name}.md)"


def signature(thing):
    """Returns the parameters of a constructor or function."""
    return inspect.signature(thing).parameters


def _cell(text):
    return str(text).replace("\n", " ").replace("|", "\\|")
