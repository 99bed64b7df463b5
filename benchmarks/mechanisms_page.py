"""Generates docs/attention.md, the page of all mechanisms, and its figures.

    python benchmarks/mechanisms_page.py

Only the frame of the page is written by hand. Names come from the dicts, texts from the docstrings, caches from
`init_cache` and figures from probing the layers, so a new mechanism is on the page after the next run.
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

_FRAME = """# Attention mechanisms

`MultiHeadAttention` computes the projections. A *mechanism* computes the context from projected queries, keys and
values: it determines which keys a query attends to and their weights. A mechanism is selected by name,
`MultiHeadAttention(..., mechanism="local")`, or passed as an instance with its own arguments, in the layer, in every
block and in every model. A *mixer* has projections of its own and replaces `MultiHeadAttention` in a block.

[Which attention?](which_attention.md) helps to choose. All of them support padding, at any length. An option that a
mechanism does not support, such as a dense mask in a mechanism that builds no matrix of queries by keys, raises
`ValueError` with an alternative. Every mechanism is exported to SavedModel, TFLite and ONNX, for whole sequences and, if
it has a cache, step by step.

## Mechanisms and mixers

{mechanisms}

## Accuracy on synthetic tasks

{learned}

## Positions

Position encodings rotate queries and keys, or add to the scores or to the context. Those that add require a mechanism
that computes scores; the column lists what each requires.

{positions}

## Attention patterns

Rows are {n} queries, columns are {n} keys, bright is a large weight and black is zero. Each row has its own scale;
tokens are random. Patterns with causality:

![Causal patterns](attention_causal.png)

Without causality:

![Bidirectional patterns](attention_two-sided.png)

## How this page is made

`python benchmarks/mechanisms_page.py` writes this page from the docstrings, and draws the patterns with
`plots.attention_pattern`: with one-hot values for a mechanism, with a change of each token for a mixer, where the
token itself is drawn as bright as the most influential one. `tests/contract/test_export.py` compares each exported file
with the Keras layer in its own runtime. `tests/contract/test_cost.py` counts the documented cost in the graph, in the
graph of the gradient and in the exported files, from 2,048 to 8,192 tokens.
"""


def linked(paper):
    """Returns a reference with its arXiv number as a link."""
    return re.sub(r"arXiv:? ?(\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", paper)


def cache(layer):
    """Returns the kind of cache of a layer and the names of its tensors."""
    if "cache" not in layer.supports:
        return "none"
    layer.build((1, N, 32), (1, N, 32))
    short, long = ({name: slab.shape for name, slab in layer.init_cache(1, n).items()} for n in (N, 2 * N))
    kind = "fixed size" if short == long else "grows with the length"
    return f"{kind}: {', '.join(f'`{name}`' for name in short)}"


def positions_of(name, supports):
    """Returns the names of the supported position encodings; a mixer without a `position` argument supports none itself."""
    if name in MIXERS and "position" not in inspect.signature(MIXERS[name]).parameters:
        return "those of its attention" if name == "long_short_range" else "none"
    named = [position for position, cls in ATTENTION_POSITIONS.items() if cls().needs <= supports]
    if name in MECHANISMS:
        named = [position for position in named if _takes(name, position)]
    return "all" if len(named) == len(ATTENTION_POSITIONS) else ", ".join(named)


def _takes(name, position):
    """Returns whether a mechanism accepts a position encoding."""
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
    """Returns rows, dicts of column to text, as a Markdown table."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[row[column].replace("|", "\\|") for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mechanism_rows():
    rows = []
    for name in NAMES:
        cls, layer = MECHANISMS.get(name) or MIXERS[name], mixer(name, N, 2, 8, WINDOW)
        row = {"name": f"`{name}`" if name in MECHANISMS else f"`{name}` (mixer)", "description": summary(cls)}
        row |= {"cost": cost(cls), "forms": forms(layer.supports), "positions": positions_of(name, layer.supports)}
        rows.append(row | {"cache": cache(layer), "reference": linked(reference(cls))})
    return rows


def position_rows():
    return [
        {"name": f"`{name}`", "description": summary(cls), "needs": ", ".join(sorted(cls().needs)) or "nothing",
         "reference": linked(reference(cls))}
        for name, cls in ATTENTION_POSITIONS.items()
    ]  # fmt: skip


def learned():
    """Returns the table of `mechanisms_learn.py`, from the file that it writes."""
    found = json.loads((DOCS / "attention_learned.json").read_text())
    names = dict.fromkeys(row["mechanism"] for row in found["rows"])
    tasks = {row["task"]: row["guessing"] for row in found["rows"]}
    by_key = {(row["mechanism"], row["task"]): row for row in found["rows"]}
    rows = [{"name": "guessing", **{task: f"{100 * share:.1f}" for task, share in tasks.items()}}]
    for name in names:
        found_for = {task: by_key.get((name, task)) for task in tasks}
        accuracies = {task: f"{100 * row['accuracy']:.1f}" if row else "not run" for task, row in found_for.items()}
        rows.append({"name": f"`{name}`", **accuracies})
    made = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
    lines = [
        "Accuracy in percent on held-out examples, of a small model with each mechanism, trained with the same steps, width",
        "and seed (`python benchmarks/mechanisms_learn.py --json docs/attention_learned.json`, and for rows of 256",
        f"tokens, from which recurrences learn more, with `--length 256 --steps 1600`; {made}).",
        "",
        *(f"- **{task}**: {note}" for task, _, note in (each.partition(": ") for each in found["notes"])),
        "",
        "Mechanisms that attend to neighbors only stay at the guessing level in recall: a layer does not reach the answer.",
    ]
    return "\n".join([*lines, "", table(rows)])


def page(mechanisms, positions):
    """Returns the page with the rows of both tables."""
    return _FRAME.format(n=N, mechanisms=table(mechanisms), learned=learned(), positions=table(positions))


def draw(direction):
    """Returns the figure of all layers that support a direction, "causal" or "bidirectional"."""
    keras.utils.set_random_seed(0)  # Weights and hashes are random: the figure is reproducible.
    weights = {}
    for name in NAMES:
        cls = MECHANISMS.get(name)
        layer = cls(**arguments(name, N, WINDOW)) if cls else mixer(name, N, 1, 16, WINDOW)
        if direction in layer.supports:
            weights[name] = attention_weights(layer, N, causal=direction == "causal")
    return draw_patterns(weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=pathlib.Path, default=DOCS, help="output directory")
    directory = parser.parse_args().directory
    for direction, word in _DIRECTIONS.items():
        draw(direction).savefig(directory / f"attention_{word}.png", dpi=110)
    (directory / "attention.md").write_text(page(mechanism_rows(), position_rows()))


if __name__ == "__main__":
    main()
