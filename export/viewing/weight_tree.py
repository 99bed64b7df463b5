"""The constants of files as HTML: a line for each block of the model, which unfolds to its weights."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.weights import WeightBytes
from keras_transformer.export.reporting.html_page import breakable, color_of
from keras_transformer.export.viewing.gains import Gains
from keras_transformer.export.viewing.layers import Block, Weight, blocks_of

_TINY = 64  # Bytes of constants that share a line.


class File(NamedTuple):
    """The constants of one format of one bundle: a column.

    Args:
        title: such as "ONNX", with the name of the bundle where there are several.
        format: key of `FORMATS`.
        size: bytes of its files.
        constants: list of `WeightBytes`.
    """

    title: str
    format: str
    size: int
    constants: Sequence[WeightBytes]


class WeightTree:
    """The constants of several files by block.

    Args:
        files: list of `File`.
        gains: what each weight costs in accuracy: a last column; None for none.
    """

    def __init__(self, files: Sequence[File], gains: Gains | None = None) -> None:
        self._files, self._gains = files, gains
        self._blocks = blocks_of({each.title: each.constants for each in files})

    def html(self) -> str:
        """Returns the lines, whose sums are the bytes of the files."""
        heads = [
            f'<span class="format" style="--own:{color_of(each.format)}">{breakable(each.title)}</span>'
            for each in self._files
        ]
        rest = [file.size - sum(block.size(file.title) for block in self._blocks) for file in self._files]
        lines = [
            self._line("head", "", heads, "accuracy"),
            *map(self._block, self._blocks),
            self._line("sum", "graph, names and metadata", [readable_size(max(each, 0)) for each in rest]),
            self._line("sum", "all files", [f"<b>{readable_size(each.size)}</b>" for each in self._files]),
        ]
        columns = len(self._files) + (self._gains is not None)
        return f'<div class="scroll"><div class="tree" style="--columns:{columns}">{"".join(lines)}</div></div>'

    def _block(self, block: Block) -> str:
        gains = [each for weight in block.weights if (each := self._gain(block, weight)) is not None]
        cells = [_share(block.size(each.title), each) for each in self._files]
        large = [each for each in block.weights if max(each.sizes.values()) >= _TINY]
        tiny = Block(block.name, [each for each in block.weights if each not in large])
        rows = [self._weight(block, each) for each in large]
        if tiny.weights:
            sums = [readable_size(tiny.size(each.title)) for each in self._files]
            rows.append(self._line("weight", f"{len(tiny.weights)} constants of less than {_TINY} B", sums))
        line = self._line("block", breakable(block.name), cells, _percent(max(gains, default=None)))
        return f"<details><summary>{line}</summary>{''.join(rows)}</details>"

    def _weight(self, block: Block, weight: Weight) -> str:
        shape = " × ".join(map(str, weight.shape)) or "scalar"
        cells = []
        for each in self._files:
            dtype = f"<small>{html.escape(weight.dtypes.get(each.title, ''))}</small>"
            cells.append(f"{readable_size(weight.sizes[each.title])} {dtype}" if each.title in weight.sizes else "–")
        title = f"{breakable(weight.name)} <small>{shape}</small>"
        return self._line("weight", title, cells, _percent(self._gain(block, weight)))

    def _gain(self, block: Block, weight: Weight) -> float | None:
        return None if self._gains is None else self._gains.by_weight.get(f"{block.name}/{weight.name}")

    def _line(self, kind: str, title: str, cells: Sequence[str], gain: str = "") -> str:
        cells = cells if self._gains is None else [*cells, gain]
        return f'<div class="line {kind}"><span>{title}</span>{"".join(f"<span>{each}</span>" for each in cells)}</div>'


def _share(size: int, file: File) -> str:
    """Bytes of a block, with a bar of its share of the file."""
    share = 100 * size / (file.size or 1)
    bar = f'<span class="bar" style="--own:{color_of(file.format)}"><span style="width:{share:.1f}%"></span></span>'
    return f"{readable_size(size)}{bar}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2%}"
