"""Check that the external weights of an ONNX file are inside its folder.

ONNX Runtime refuses others itself: from 1.24 on, and in sparse tensors from 1.27 on. The file is parsed as a protocol
buffer (onnx.proto) without the onnx package.
"""

import mmap
import pathlib
import re
from collections.abc import Collection, Iterator
from typing import Any

from keras_transformer.utils.types import Path

# Fields that may contain tensors, by message: number of the field -> message in it.
_CHILDREN = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_FIXED = {1: 8, 5: 4}
_MAX_DEPTH = 200
# Readers keep 32 bits of a tag, and 31 of a length.
_TAGS, _LENGTHS = 2**32, 2**31
# ONNX Runtime takes names with stars for addresses in memory.
_LOCATION = re.compile(r"[\w. +=@~()-]+(/[\w. +=@~()-]+)*")


def check_external_data(path: Path, listed: Collection[str] | None = None) -> None:
    """Checks that all tensors of a file are stored inside its folder.

    Args:
        path: path of the `.onnx` file.
        listed: paths, relative to the folder, of the files that may have tensors; None for any.

    Raises:
        ValueError: a path is outside, or not listed, or the file is damaged.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"location") < 0:  # The key of every external path; much faster than parsing the graph.
            return
        folder = pathlib.Path(path).parent
        for location in dict.fromkeys(_locations(content)):
            if not _is_inside(folder, location):
                raise ValueError(f"it has weights outside its folder, in {location[:80]!a}")
            if listed is not None and pathlib.PurePosixPath(location).as_posix() not in listed:
                raise ValueError(f"it has weights in {location[:80]!a}, a file that the manifest does not list")


def _is_inside(folder: pathlib.Path, location: str) -> bool:
    parts = pathlib.PurePosixPath(location).parts
    if not parts or ".." in parts or not _LOCATION.fullmatch(location):
        return False
    return (folder / location).resolve().is_relative_to(folder.resolve())


def weight_files(path: Path) -> list[str]:
    """Returns the names of the files with the weights of an `.onnx` file, which are in the same folder.

    Args:
        path: path of the `.onnx` file.

    Returns:
        List of str, sorted.

    Raises:
        ValueError: as `check_external_data`.
    """
    check_external_data(path)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sorted(set(_locations(content)))


def _locations(content: Any) -> Iterator[str]:
    """Yields the path of every external tensor."""
    pending = [("model", 0, len(content), 0)]
    while pending:
        kind, start, stop, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise ValueError("its graphs are nested too deeply")
        if kind == "entry":
            entry = {number: content[begin:end] for number, begin, end in _fields(content, start, stop)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
            continue
        children = _CHILDREN[kind]
        for number, begin, end in _fields(content, start, stop):
            if number in children:
                pending.append((children[number], begin, end, depth + 1))


def _fields(content: Any, at, stop):
    """Yields number, start and end of each length-delimited field of a message; other fields are skipped."""
    while at < stop:
        key, at = _varint(content, at, stop)
        if not 8 <= key < _TAGS:
            raise ValueError("it is not an ONNX file: a field has no valid number")
        wire = key & 7
        if wire == 2:
            length, at = _varint(content, at, stop)
            if length >= _LENGTHS or at + length > stop:
                raise ValueError("it is cut short")
            yield key >> 3, at, at + length
            at += length
        elif wire == 0:
            _, at = _varint(content, at, stop)
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            raise ValueError("it is not an ONNX file")


def _varint(content: Any, at, stop):
    value = content[at] if at < stop else 0x80
    if value < 0x80:  # The usual case.
        return value, at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            break
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("it is cut short")
