"""Writes docs/attention.md, the page of all mechanisms, and its pictures, from the mechanisms themselves.

    python benchmarks/mechanisms_page.py

Nothing on the page is kept by hand but its frame: names come from the dicts, words from the docstrings, caches from
asking for one, pictures from probing. So a mechanism that is added is on the page when the command has run again.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import argparse
import inspect
import json
import pathlib
import re

import keras
import numpy as np
from long_mechanisms import NAMES, arguments, mixer

from keras_transformer.attention import MECHANISMS, MIXERS, Visibility
from keras_transformer.catalog import cost, forms, reference, summary
from keras_transformer.plots.attention_pattern import attention_weights, draw_patterns
from keras_transformer.positions import ATTENTION_POSITIONS

DOCS = pathlib.Path(__file__).parents[1] / "docs"
N, WINDOW = 64, 16
_DIRECTIONS = {"bidirectional": "two-sided", "causal": "causal"}

_FRAME = """# Attention: the whole family

Written by `python benchmarks/mechanisms_page.py`; change the docstrings, not this page.

`MultiHeadAttention` projects; a *mechanism* says which keys a query sees and how they are weighed. Any of them stands
under its name in `MultiHeadAttention(..., mechanism="local")`, as an instance where it has arguments, and so in every
block and model. A *mixer* has projections of its own, and stands in a block in place of `MultiHeadAttention`. What a
mechanism cannot honor, such as a dense mask where it builds no matrix of queries by keys, it refuses with a
`ValueError` that says what to do instead; padding is honored by all, at any length.

Every one is exported to SavedModel, TFLite and ONNX, whole and, where it has a cache, step by step, and each file is
compared with the Keras layer in its own runtime, by `tests/contract/test_export.py`. What it claims to cost is
counted in its graph, in that of its gradient and in its exported files, from 2,048 to 8,192 tokens, by
`tests/contract/test_cost.py`.

## Who attends to whom

Drawn by `plots.attention_pattern`: rows are {n} queries, columns {n} keys, bright is much and black is nothing, each
row on its own scale, with random tokens. What a query sees is found by probing: one-hot values for a mechanism, a
change of each token for a mixer, whose own token shows as bright as the one that moves it most.

Two-sided:

![Two-sided patterns](attention_two-sided.png)

Causal:

![Causal patterns](attention_causal.png)

## Mechanisms and mixers

{mechanisms}

## What they learn

{learned}

## Positions

Tokens can say where they stand by turning queries and keys, or by adding to the scores or the context, for which a
mechanism must have scores to add to: the column says what each needs.

{positions}
"""


def linked(paper):
    """A reference, with the number of its paper as a link."""
    return re.sub(r"arXiv:? ?(\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", paper)


def cache(layer):
    """What a layer keeps of the past, by asking it."""
    if "cache" not in layer.supports:
        return "none"
    layer.build((1, N, 32), (1, N, 32))
    short, long = ({name: slab.shape for name, slab in layer.init_cache(1, n).items()} for n in (N, 2 * N))
    kind = "of fixed size" if short == long else "grows with the text"
    return f"{kind}: {', '.join(f'`{name}`' for name in short)}"


def positions_of(name, supports):
    """Which positions act in it; a mixer that names none in its constructor takes none, but for those of its parts."""
    if name in MIXERS and "position" not in inspect.signature(MIXERS[name]).parameters:
        return "of its attention" if name == "long_short_range" else "none"
    named = [position for position, cls in ATTENTION_POSITIONS.items() if cls().needs <= supports]
    if name in MECHANISMS:
        named = [position for position in named if _takes(name, position)]
    return "all" if len(named) == len(ATTENTION_POSITIONS) else ", ".join(named)


def _takes(name, position):
    """Whether a mechanism does not refuse a position, by asking it."""
    mechanism, position = MECHANISMS[name](**arguments(name, N, WINDOW)), ATTENTION_POSITIONS[position]()
    x, slots = np.zeros((1, N, 2, 8), "float32"), np.arange(N, dtype="int32")
    position.build(x.shape, x.shape)
    causal = "bidirectional" not in mechanism.supports
    try:
        mechanism(x, x, x, visibility=Visibility.from_slots(slots, slots, causal=causal), position=position)
    except ValueError:
        return False
    return True


def table(rows):
    """Rows, as dicts of column to text, in Markdown."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[row[column].replace("|", "\\|") for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mechanism_rows():
    rows = []
    for name in NAMES:
        cls, layer = MECHANISMS.get(name) or MIXERS[name], mixer(name, N, 2, 8, WINDOW)
        row = {"name": f"`{name}`" if name in MECHANISMS else f"`{name}` (mixer)", "what it computes": summary(cls)}
        row |= {"cost": cost(cls), "forms": forms(layer.supports), "positions": positions_of(name, layer.supports)}
        rows.append(row | {"cache": cache(layer), "reference": linked(reference(cls))})
    return rows


def position_rows():
    return [
        {"name": f"`{name}`", "what it computes": summary(cls), "needs": ", ".join(sorted(cls().needs)) or "nothing",
         "reference": linked(reference(cls))}
        for name, cls in ATTENTION_POSITIONS.items()
    ]  # fmt: skip


def learned():
    """The table of `mechanisms_learn.py`, from the file that it has written."""
    found = json.loads((DOCS / "attention_learned.json").read_text())
    names = dict.fromkeys(row["mechanism"] for row in found["rows"])
    tasks = {row["task"]: row["guessing"] for row in found["rows"]}
    by_key = {(row["mechanism"], row["task"]): row for row in found["rows"]}
    rows = [{"name": "guessing", **{task: f"{100 * share:.1f}" for task, share in tasks.items()}}]
    for name in names:
        accuracies = {task: f"{100 * by_key[name, task]['accuracy']:.1f}" for task in tasks}
        rows.append({"name": f"`{name}`", **accuracies})
    made = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
    lines = [
        "Accuracy in per cent on rows that training has not seen, of a small model around each mechanism, with the same",
        "steps, width and seed (`python benchmarks/mechanisms_learn.py --json docs/attention_learned.json`;",
        f"{made}).",
        "",
        *(f"- **{task}**: {note}" for task, _, note in (each.partition(": ") for each in found["notes"])),
        "",
        "What sees its neighbors alone cannot do better than guessing at recall: its one layer does not reach the answer.",
    ]
    return "\n".join([*lines, "", table(rows)])


def page(mechanisms, positions):
    """The page, of the rows of both tables."""
    return _FRAME.format(n=N, mechanisms=table(mechanisms), learned=learned(), positions=table(positions))


def draw(direction):
    """The figure of all that have this direction, "causal" or "bidirectional"."""
    keras.utils.set_random_seed(0)  # Of weights and hashes: the picture is the same each time.
    weights = {}
    for name in NAMES:
        cls = MECHANISMS.get(name)
        layer = cls(**arguments(name, N, WINDOW)) if cls else mixer(name, N, 1, 16, WINDOW)
        if direction in layer.supports:
            weights[name] = attention_weights(layer, N, causal=direction == "causal")
    return draw_patterns(weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=pathlib.Path, default=DOCS, help="where the page goes")
    directory = parser.parse_args().directory
    for direction, word in _DIRECTIONS.items():
        draw(direction).savefig(directory / f"attention_{word}.png", dpi=110)
    (directory / "attention.md").write_text(page(mechanism_rows(), position_rows()))


if __name__ == "__main__":
    main()
