"""Where the weights of an ONNX file lie: inside its folder, or it is not opened. ONNX Runtime 1.23 does not look.

The file is read as the protocol buffer that it is (onnx.proto), without the onnx package.
"""

import mmap
import pathlib

# What may hold a tensor, by the kind of message: number of the field -> kind of what is in it.
_CHILDREN = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_FIXED = {1: 8, 5: 4}
_MAX_DEPTH = 200


def check_external_data(path):
    """Refuses a file whose tensors lie outside its folder.

    Args:
        path: path of the `.onnx` file.

    Raises:
        ValueError: names the place, or says that the file is damaged.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"location") < 0:  # The key of every such place, and much quicker than reading the graph.
            return
        for location in _locations(content):
            parts = pathlib.PurePosixPath(location).parts
            if not parts or location.startswith("/") or ".." in parts or "\\" in location or ":" in location:
                raise ValueError(f"it keeps weights outside its folder, in {location[:80]!a}")
            place = pathlib.Path(path).parent
            if not (place / location).resolve().is_relative_to(place.resolve()):
                raise ValueError(f"it keeps weights outside its folder, in {location[:80]!a}")


def weight_files(path):
    """Names of the files beside an `.onnx` file that hold its weights.

    Args:
        path: path of the `.onnx` file.

    Returns:
        List of str, sorted.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sorted(set(_locations(content)))


def _locations(content):
    """Every name of a file of weights."""
    pending = [("model", 0, len(content), 0)]
    while pending:
        kind, start, stop, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise ValueError("its graphs lie too deep within each other")
        if kind == "entry":
            entry = {number: content[begin:end] for number, begin, end in _fields(content, start, stop)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
            continue
        children = _CHILDREN[kind]
        for number, begin, end in _fields(content, start, stop):
            if number in children:
                pending.append((children[number], begin, end, depth + 1))


def _fields(content, at, stop):
    """Number, start and end of each field of a message that has a length; the others are stepped over."""
    while at < stop:
        key, at = _varint(content, at, stop)
        wire = key & 7
        if wire == 2:
            length, at = _varint(content, at, stop)
            if at + length > stop:
                raise ValueError("it is cut short")
            yield key >> 3, at, at + length
            at += length
        elif wire == 0:
            _, at = _varint(content, at, stop)
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            raise ValueError("it is no ONNX file")


def _varint(content, at, stop):
    value = content[at] if at < stop else 0x80
    if value < 0x80:  # Nearly always.
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
