"""The constants of several files by the layers of the model that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from keras_transformer.export.data.weights import WeightBytes

OTHER = "constants of the graph"
# What converters add to the paths of layers, and to the names of weights.
_NOISE = re.compile(r"repeated_layer(_\d+)?|PartitionedCall|ConstantFolding|functional(_\d+)?")
_QUANTIZED = re.compile(r"\.(?:u?int\d+|float16|codes)\w*(?:\.\w+)*$")
_DERIVED = ("multiplied", "scaled", "transposed", "as_vector")
_VARIABLES = ("kernel", "bias", "gamma", "beta", "embeddings", "scale")


class Weight(NamedTuple):
    """One weight of a layer in several files.

    Args:
        name: path inside its block.
        shape: sizes in the first file that has it.
        sizes: bytes by file.
        dtypes: dtype by file, of its largest part: the codes of a quantized weight, not their scales.
    """

    name: str
    shape: tuple[int, ...]
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]


class Block(NamedTuple):
    """A block of the model, such as `encoder_block_0`.

    Args:
        name: first part of the paths of its weights.
        weights: list of `Weight`.
    """

    name: str
    weights: Sequence[Weight]

    def size(self, file: str) -> int:
        """The bytes of its weights in one file."""
        return sum(each.sizes.get(file, 0) for each in self.weights)


def blocks_of(files: Mapping[str, Sequence[WeightBytes]]) -> list[Block]:
    """Groups the constants of files by block, in the order of their first use; those of no layer are last.

    Args:
        files: dict of the title of a file to its constants.

    Example:

    >>> kernel = WeightBytes("block_0/dense/kernel.int8", "int8", (4, 4), 16)
    >>> scale = WeightBytes("block_0/dense/kernel.int8.scale", "float32", (4,), 16)
    >>> (block,) = blocks_of({"ONNX": [kernel, scale]})
    >>> block.name, [(each.name, dict(each.sizes)) for each in block.weights]
    ('block_0', [('dense/kernel', {'ONNX': 32})])
    """
    names = _block_names(each.name for constants in files.values() for each in constants)
    found: dict[str, dict[str, list[tuple[str, WeightBytes]]]] = {}
    for file, constants in files.items():
        for each in constants:
            block, name = place(each.name, names)
            found.setdefault(block, {}).setdefault(name, []).append((file, each))
    blocks = [Block(block, [_weight(*each) for each in weights.items()]) for block, weights in found.items()]
    return sorted(blocks, key=lambda block: block.name == OTHER)


def place(name: str, blocks: Iterable[str]) -> tuple[str, str]:
    """Returns the block of a constant and its path inside that.

    Args:
        name: name in a file: the path of a variable, or that of an operation.
        blocks: names of the blocks.

    Example:

    >>> place("model_1/block_0_1/PartitionedCall/dense_1/BiasAdd;model_1/add", ["block_0"])
    ('block_0', 'dense/bias')
    """
    known = set(blocks)
    path = variable_name(name.split(";")[0])
    parts = [each for each in path.split("/") if each and not _NOISE.fullmatch(each)]
    for index, part in enumerate(parts[:2]):
        block = part if part in known else part.removesuffix("_1")
        if block in known:
            is_variable = part in known and index == 0
            rest = parts[index + 1 :]
            rest = rest if is_variable else [_plain(each) for each in rest]
            return block, "/".join(rest) or block
    return OTHER, name


def variable_name(name: str) -> str:
    """The name of the variable that a constant holds, or whose codes, scales or offsets it holds."""
    parts = _QUANTIZED.sub("", name).split("/")
    while len(parts) > 1 and parts[-1] in _DERIVED:
        parts.pop()
    return "/".join(parts)


def _plain(part: str) -> str:
    return "bias" if part == "BiasAdd" else part.removesuffix("_1")


def _block_names(names: Iterable[str]) -> list[str]:
    """The first parts of the paths of variables."""
    paths = [variable_name(name).split("/") for name in names if ":" not in name and ";" not in name]
    return list(dict.fromkeys(path[0] for path in paths if len(path) > 1 and path[-1] in _VARIABLES))


def _weight(name: str, parts: Sequence[tuple[str, WeightBytes]]) -> Weight:
    sizes: dict[str, int] = {}
    largest: dict[str, WeightBytes] = {}
    for file, each in parts:
        sizes[file] = sizes.get(file, 0) + each.size
        if file not in largest or each.size > largest[file].size:
            largest[file] = each
    shape = next(iter(largest.values())).shape
    return Weight(name, shape, sizes, {file: each.dtype for file, each in largest.items()})
