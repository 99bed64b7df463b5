"""Equal blocks of a model, of which a few are traced in place of all.

The cost of a step grows by the same operations and the same memory with each further group of equal blocks. Two steps with
few groups show which; the steps of large models take seconds to trace otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

import keras

from keras_transformer.backend import keras_private
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.equal_blocks import kind
from keras_transformer.utils.types import Cache, Outputs, Tensor

if TYPE_CHECKING:
    from keras_transformer.backend.keras_private.graphs import Node


@dataclasses.dataclass(frozen=True)
class Groups:
    """Groups of blocks that repeat, one after another.

    Attributes:
        blocks: list of the blocks of these groups, in order.
        size: int. The number of blocks in a group.
    """

    blocks: list[Block]
    size: int

    @property
    def count(self) -> int:
        """int: the number of groups."""
        return len(self.blocks) // self.size

    @property
    def fewest(self) -> int:
        """int: the number of groups in the smallest step that is traced; at least two blocks."""
        return 2 if self.size == 1 else 1

    @contextlib.contextmanager
    def only(self, count: int) -> Iterator[None]:
        """Context in which the model has only `count` of the groups: the other blocks return their input."""
        skipped = self.blocks[: (self.count - count) * self.size]
        for block in skipped:
            # Past Keras, which would search the function for layers.
            object.__setattr__(block, "call", _unchanged)
        try:
            yield
        finally:
            for block in skipped:
                object.__delattr__(block, "call")


def find_groups(model: keras.Model) -> Groups | None:
    """Returns the largest number of equal groups of consecutive blocks; None if tracing fewer would not save work.

    Blocks are equal if they are of one kind: see `blocks.equal_blocks.kind`. Each reads the output of the one before, which
    nothing else reads, and otherwise the same inputs, such as a mask. A further float input, or a weight that several blocks
    share, would sum the gradients of all blocks.

    Example:

    >>> from keras_transformer.models import Decoder, Size
    >>> groups = find_groups(Decoder(Size(8, 8, 2, 16), vocabulary_size=10))
    >>> groups.count, groups.size
    (8, 1)
    """
    best, saved = None, 0
    for chain in _chains(model):
        saved = max(saved, len(chain) // 3)  # Two small steps take longer than one of as many blocks.
        kinds = [kind(block) for block in chain]
        for size in range(1, len(chain) // 3 + 1):
            for groups in _runs(chain, kinds, size):
                less = len(groups.blocks) - (2 * groups.fewest + 1) * size - 2 * (len(chain) - len(groups.blocks))
                if less > saved:
                    best, saved = groups, less
    return best


def _runs(chain: list[Block], kinds: list[Hashable], size: int) -> Iterator[Groups]:
    """Yields the longest run of equal groups of a size."""
    start = 0
    for index in range(size, len(chain) + 1):
        if index == len(chain) or kinds[index] != kinds[index - size]:
            count = (index - start) // size
            yield Groups(chain[start : start + count * size], size)
            start = index - size + 1


def _chains(model: keras.Model) -> Iterator[list[Block]]:
    """Yields the lists of blocks of which each reads the one before."""
    if not hasattr(model, "_nodes_by_depth"):
        return
    nodes = keras_private.nodes_in_order(model)
    readers = Counter(id(tensor) for node in nodes for tensor in node.input_tensors)
    readers.update(id(tensor) for tensor in keras.tree.flatten(model.output))
    uses = Counter(id(weight) for node in nodes for weight in getattr(node.operation, "weights", ()))
    chain: list[Node] = []
    for node in nodes:
        if not _may_repeat(node) or any(uses[id(weight)] > 1 for weight in node.operation.weights):
            continue
        last = chain[-1] if chain else None
        if last is not None and not (_others(node) == _others(last) and _follows(node, last, readers)):
            yield [each.operation for each in chain]
            chain = []
        chain.append(node)
    yield [each.operation for each in chain]


def _may_repeat(node: Node) -> bool:
    """Whether a node is a block with one output like its first input, and further inputs without gradients."""
    if not isinstance(node.operation, Block) or len(node.outputs) != 1:
        return False
    first, *others = node.input_tensors
    like = first.shape == node.outputs[0].shape and first.dtype == node.outputs[0].dtype
    return like and not any("float" in each.dtype for each in others)


def _others(node: Node) -> list[int]:
    return [id(tensor) for tensor in node.input_tensors[1:]]


def _follows(node: Node, last: Node, readers: Counter[int]) -> bool:
    return node.input_tensors[0] is last.outputs[0] and readers[id(last.outputs[0])] == 1


def _unchanged(x: Tensor, *arguments: object, cache: Cache | None = None, **options: object) -> Outputs:
    """The call of a block that is skipped."""
    return x if cache is None else (x, cache)
