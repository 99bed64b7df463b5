"""What the made pages share."""

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
cases, mechanisms_page, parameters_table = map(
    importlib.import_module, ("cases", "mechanisms_page", "parameters_table")
)

# Folder of pages -> name -> what each page is of.
PARTS = {
    "mechanisms": attention.MECHANISMS,
    "mixers": {name: cls for name, cls in attention.MIXERS.items() if name != "multi_head"},
    "recurrences": recurrence.RECURRENCES,
    "positions": positions.ATTENTION_POSITIONS | positions.EMBEDDING_POSITIONS,
    "models": MODELS,
}
# Where each thing that has a page of its own stands.
PAGES = {thing: f"{folder}/{name}.md" for folder, things in PARTS.items() for name, thing in things.items()}


def path_of(thing):
    """Where a class or function is defined, as mkdocstrings wants it."""
    return f"{thing.__module__}.{thing.__qualname__}"


def documented(thing):
    """The docstring, with its signature."""
    return f"::: {path_of(thing)}"


def table(rows):
    """Rows, as dicts of column to text, in Markdown."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([_cell(row[column]) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def facts(rows):
    """Pairs of a name and a text, as a table without a head line."""
    return table([{" ": f"**{name}**", "  ": text} for name, text in rows if text])


def linked(text):
    """A text with the numbers of papers as links."""
    return re.sub(r"arXiv:? ?(\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def link(name, folder, here=""):
    """The name of a part as a link to its page, from a page in the folder `here`."""
    start = "" if here == folder else f"{'../' if here else ''}{folder}/"
    return f"[`{name}`]({start}{name}.md)"


def signature(thing):
    """Names of the constructor arguments."""
    return inspect.signature(thing).parameters


def _cell(text):
    return str(text).replace("\n", " ").replace("|", "\\|")
