"""Places on images as text: how Kosmos-2 says where a thing is."""

import math
import re
from typing import NamedTuple

_TAG = re.compile(r"(</?(?:phrase|object|grounding|image|s)>|<patch_index_\d+>|</delimiter_of_multi_objects/>)")


class Entity(NamedTuple):
    """A thing that a text names and points at.

    Attributes:
        phrase: str; empty where the text points without a name.
        start, stop: where the phrase stands in the caption.
        boxes: list of `(left, top, right, bottom)`, as shares of the image's width and height.
    """

    phrase: str
    start: int
    stop: int
    boxes: list


def read_grounding(text: str, side: int = 32):
    """What a grounded text says, and what it points at.

    Args:
        text: str, such as "<phrase>a fire</phrase><object><patch_index_0005><patch_index_0911></object>".
        side: int: the cells across and down that images are divided into for places.

    Returns:
        `(caption, entities)`: str without tags, and a list of `Entity`.

    Example:

    >>> text = "<grounding> By<phrase> a fire</phrase><object><patch_index_0005><patch_index_0911></object>."
    >>> caption, (entity,) = read_grounding(text)
    >>> caption, caption[entity.start : entity.stop], entity.boxes
    ('By a fire.', 'a fire', [(0.171875, 0.015625, 0.484375, 0.890625)])

    Reference: Peng et al., Kosmos-2, arXiv 2306.14824, section 2.
    """
    caption, entities, span, cells = "", [], None, None
    for part in _TAG.split(text.rpartition("</image>")[2]):
        if part == "<phrase>":
            span = (len(caption), None)
        elif part == "</phrase>" and span is not None:
            span = (span[0], len(caption))
        elif part == "<object>":
            cells = []
        elif part == "</object>":
            entities += [_entity(caption, span, cells, side)] if cells else []
            span = cells = None
        elif part.startswith("<patch_index_") and cells is not None:
            cells.append(int(part[len("<patch_index_") : -1]))
        elif cells is None and not _TAG.fullmatch(part):
            caption += part if caption else part.lstrip()
    return caption.rstrip(), entities


def write_place(box, side: int = 32):
    """The text that points at a box, to stand behind "</phrase>".

    Args:
        box: `(left, top, right, bottom)`, as shares of the image's width and height; or a list of such.
        side: int: as in `read_grounding`.

    Returns:
        str.

    Raises:
        ValueError: a box that is empty, or not within the image.

    Example:

    >>> write_place((0.17, 0.01, 0.5, 0.9))
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
    """The box from one cell to another: from middle to middle, or all of them where they are in one row or column."""
    (top, left), (bottom, right) = divmod(first, side), divmod(last, side)
    is_line = left == right or top == bottom
    inset, outset = (0.0, 1.0) if is_line else (0.5, 0.5)
    return ((left + inset) / side, (top + inset) / side, (right + outset) / side, (bottom + outset) / side)
