"""Grounded text of Kosmos-2: phrases with bounding boxes as location tokens."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_TAG = re.compile(r"(</?(?:phrase|object|grounding|image|s)>|<patch_index_\d+>|</delimiter_of_multi_objects/>)")


class Entity(NamedTuple):
    """A phrase of a text, and its bounding boxes.

    Attributes:
        phrase: str; empty for boxes without a phrase.
        start, stop: int. The range of the phrase's characters in the caption.
        boxes: list of `(left, top, right, bottom)`, relative to the image's width and height.

    Example:

    >>> entity = Entity("a fire", start=3, stop=9, boxes=[(0.25, 0.0, 0.5, 1.0)])
    >>> "By a fire."[entity.start : entity.stop]
    'a fire'
    """

    phrase: str
    start: int
    stop: int
    boxes: list[tuple[float, float, float, float]]


def read_grounding(text: str, side: int = 32) -> tuple[str, list[Entity]]:
    """Parses a grounded text into its caption and entities.

    Args:
        text: str, such as "<phrase>a fire</phrase><object><patch_index_0005><patch_index_0911></object>".
        side: int. Number of rows, and of columns, of the grid of location tokens. Default 32.

    Returns:
        `(caption, entities)`: str without tags, and a list of `Entity`.

    Example:

    >>> text = "<grounding> By<phrase> a fire</phrase><object><patch_index_0005><patch_index_0911></object>."
    >>> caption, (entity,) = read_grounding(text)
    >>> caption, caption[entity.start : entity.stop], entity.boxes
    ('By a fire.', 'a fire', [(0.171875, 0.015625, 0.484375, 0.890625)])

    Reference: Peng et al., Kosmos-2, arXiv 2306.14824, section 2.
    """
    caption, entities = "", []
    span: tuple[int, int | None] | None = None  # Start and end of a phrase.
    cells: list[int] | None = None  # Indices of patches.
    for part in _TAG.split(text.rpartition("</image>")[2]):
        if part == "<phrase>":
            span = (len(caption), None)
        elif part == "</phrase>" and span is not None:
            span = (span[0], len(caption))
        elif part == "<object>":
            cells = []
        elif part == "</object>":
            entities += [_entity(caption, span, cells, side)] if cells else []
            span, cells = None, None
        elif part.startswith("<patch_index_") and cells is not None:
            cells.append(int(part[len("<patch_index_") : -1]))
        elif cells is None and not _TAG.fullmatch(part):
            caption += part if caption else part.lstrip()
    return caption.rstrip(), entities


def write_boxes(
    box: tuple[float, float, float, float] | list[tuple[float, float, float, float]], side: int = 32
) -> str:
    """Returns the location tokens of one or several bounding boxes, which follow "</phrase>".

    Args:
        box: `(left, top, right, bottom)`, relative to the image's width and height; or a list of such.
        side: int: as in `read_grounding`. Default 32.

    Returns:
        str.

    Raises:
        ValueError: an empty box, or one that exceeds the image.

    Example:

    >>> write_boxes((0.17, 0.01, 0.5, 0.9))
    '<object><patch_index_0005><patch_index_0911></object>'
    """
    pairs = []
    for left, top, right, bottom in box if isinstance(box, list) else [box]:
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise ValueError(
                f"A box is (left, top, right, bottom), from 0 to 1. Received: {(left, top, right, bottom)}"
            )
        first = math.floor(top * side) * side + math.floor(left * side)
        last = math.ceil(bottom * side - 1) * side + math.ceil(right * side - 1)
        pairs.append(f"<patch_index_{first:04}><patch_index_{last:04}>")
    return f"<object>{'</delimiter_of_multi_objects/>'.join(pairs)}</object>"


def _entity(caption, span, cells, side):
    start, stop = (len(caption), len(caption)) if span is None or span[1] is None else span
    phrase = caption[start:stop]
    start += len(phrase) - len(phrase.lstrip())
    boxes = [_box(first, last, side) for first, last in zip(cells[::2], cells[1::2], strict=False)]
    return Entity(phrase.strip(), start, stop - (len(phrase) - len(phrase.rstrip())), boxes)


def _box(first, last, side):
    """Returns the box from the center of one cell to that of another; whole cells if they are in one row or column."""
    (top, left), (bottom, right) = divmod(first, side), divmod(last, side)
    is_line = left == right or top == bottom
    inset, outset = (0.0, 1.0) if is_line else (0.5, 0.5)
    return ((left + inset) / side, (top + inset) / side, (right + outset) / side, (bottom + outset) / side)
