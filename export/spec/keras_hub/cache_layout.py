"""The cache of a task of KerasHub as named tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import keras
from keras import ops

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.per_row.values import Stacked, Value, plain
from keras_transformer.export.graph.replaced_layers import methods_set
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Cache, Tensor, Tensors

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

CALL = "call_with_cache"
_BATCH, _SLOTS = "batch", "cache_length"
_ROWS, _LENGTH = 2, 7
_PAIR = ("key", "value")


class Leaf(NamedTuple):
    """A tensor of the cache of a task.

    Attributes:
        shape: its sizes; `"batch"` and `"cache_length"` where they are dynamic.
        dtype: str.
        path: its place in the structure of the cache, a number for each level.
    """

    shape: tuple[int | str, ...]
    dtype: str
    path: tuple[int, ...]

    def spec(self, name: str) -> ArraySpec:
        """Its `ArraySpec`."""
        axes = tuple(size if isinstance(size, str) else None for size in self.shape)
        shape = tuple(None if isinstance(size, str) else size for size in self.shape)
        return ArraySpec(name, self.dtype, shape, axes)


class CacheLayout:
    """The structure of the cache of a task, and the names of its tensors.

    A task may keep all layers in one tensor, of which each layer takes its part. Such parts are tensors of their own here:
    a step then changes those of each layer, and copies none.

    Args:
        task: task of KerasHub with `call_with_cache` and `_build_cache`.

    Attributes:
        leaves: list of `Leaf`.

    Raises:
        InvalidModelError: the task makes no cache for texts alone, or one of another form.
    """

    def __init__(self, task: keras.Model) -> None:
        self._structure = _empty_cache(task, _ROWS, _LENGTH)
        small, wide, long = (
            keras.tree.flatten(each)
            for each in (
                self._structure,
                _empty_cache(task, _ROWS + 1, _LENGTH),
                _empty_cache(task, _ROWS, _LENGTH + 2),
            )
        )
        paths = [tuple(map(int, path)) for path, _ in keras.tree.flatten_with_path(self._structure)]
        self.leaves = [_leaf(task, *each) for each in zip(small, wide, long, paths, strict=True)]
        self._depths = [0] * len(self.leaves)

    def set_parts(self, graph: TracedGraph, names: Sequence[str]) -> None:
        """Takes those tensors apart of which a traced step only reads parts.

        Args:
            graph: `TracedGraph` of the step.
            names: of the inputs that are the leaves.
        """
        nodes = list(graph.graph_def.node)
        self._depths = [_depth(nodes, name) for name in names]

    def specs(self) -> list[ArraySpec]:
        """The `ArraySpec` of each tensor of the cache."""
        found = []
        for leaf, depth in zip(self.leaves, self._depths, strict=True):
            part = leaf._replace(shape=leaf.shape[:1] + leaf.shape[1 + depth :])
            found += [part.spec(_name((*leaf.path, *index))) for index in _indices(leaf.shape[1 : 1 + depth])]
        return found

    def empty(self, batch_size: int | Tensor, length: int | Tensor) -> Cache:
        """A cache of zeros."""
        sizes = {_BATCH: batch_size, _SLOTS: length}
        return {
            each.name: ops.zeros(
                [sizes[axis] if axis else size for axis, size in zip(each.axes, each.shape, strict=True)], each.dtype
            )
            for each in self.specs()
        }

    def leaf_values(self, cache: Cache) -> list[Value]:
        """The named tensors as the leaves, of which some are stacks."""
        parts = iter([cache[each.name] for each in self.specs()])
        return [
            _stacked(leaf.shape[1 : 1 + depth], parts) for leaf, depth in zip(self.leaves, self._depths, strict=True)
        ]

    def packed(self, leaves: Sequence[Tensor]) -> Tensors:
        """Leaves in the structure of the task."""
        return keras.tree.pack_sequence_as(self._structure, list(leaves))

    def named(self, leaves: Sequence[Value]) -> Cache:
        """Leaves as named tensors."""
        tensors: list[Tensor] = []
        for value, depth in zip(leaves, self._depths, strict=True):
            tensors += _parts(value, depth)
        return dict(zip((each.name for each in self.specs()), tensors, strict=True))


class _Captured(Exception):
    """Ends the building of a cache when that is known."""


def _empty_cache(task: keras.Model, rows: int, length: int) -> Tensors:
    """The cache with which a task begins to read texts."""
    found: list[Tensors] = []
    parameters = list(inspect.signature(getattr(task, CALL)).parameters)

    def captured(*args: Tensors, **kwargs: Tensors) -> None:
        found.append({**dict(zip(parameters, args, strict=False)), **kwargs}["cache"])
        raise _Captured

    build: Callable[..., object] = task._build_cache
    given = {"token_ids": ops.zeros((rows, length), "int32"), "padding_mask": ops.ones((rows, length), "bool")}
    try:
        with methods_set([(task, CALL, captured)]):
            build(**{name: given.get(name) for name in inspect.signature(build).parameters})
    except _Captured:
        return found[0]
    except library_exceptions() as error:
        raise _refused(task, one_line(error)) from error
    raise _refused(task, f"it does not read them by {CALL}")


def _refused(task: keras.Model, reason: str) -> InvalidModelError:
    return InvalidModelError(
        f"'{task.name}' ({type(task).__name__}) makes no cache for texts alone: {reason}", Remedy.UNCACHED
    )


def _leaf(task: keras.Model, small: Tensor, wide: Tensor, long: Tensor, path: tuple[int, ...]) -> Leaf:
    shape: list[int | str] = []
    for size, wider, longer in zip(small.shape, wide.shape, long.shape, strict=True):
        grows = (wider - size, longer - size)
        if grows not in ((0, 0), (1, 0), (0, 2)) or (grows[1] and size != _LENGTH):
            raise _refused(task, f"its shape is {tuple(small.shape)} for texts of {_LENGTH} tokens")
        shape.append(_BATCH if grows[0] else _SLOTS if grows[1] else int(size))
    if shape[0] != _BATCH:
        raise _refused(task, "its first axis is not that of the rows")
    return Leaf(tuple(shape), keras.backend.standardize_dtype(small.dtype), path)


def _depth(nodes: Sequence[NodeDef], tensor: str) -> int:
    """How often the parts of a tensor along its second axis are all that is read of it."""
    readers = [node for node in nodes if tensor in node.input and node.op != "Shape"]
    if not readers or not all(map(_takes_part, readers)):
        return 0
    return 1 + min(_depth(nodes, node.name) for node in readers)


def _takes_part(node: NodeDef) -> bool:
    """Whether an operation takes one part along the second axis: `x[:, 0]` or `x[:, 0, ...]`."""
    if node.op != "StridedSlice":
        return False
    masks = {name: node.attr[name].i for name in ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")}
    return masks["shrink_axis_mask"] == 2 and masks["begin_mask"] & 1 == 1 and not masks["new_axis_mask"]


def _indices(sizes: Sequence[int | str]) -> list[tuple[int, ...]]:
    if not sizes:
        return [()]
    return [(index, *rest) for index in range(int(sizes[0])) for rest in _indices(sizes[1:])]


def _name(place: tuple[int, ...]) -> str:
    """The name of the tensor at a place: `"layer_0_key"`, or a number for each level."""
    if len(place) == 2 and place[1] < len(_PAIR):
        return f"layer_{place[0]}_{_PAIR[place[1]]}"
    return "_".join(map(str, ("cache", *place)))


def _stacked(sizes: Sequence[int | str], parts: Iterator[Tensor]) -> Value:
    if not sizes:
        return next(parts)
    return Stacked(1, tuple(_stacked(sizes[1:], parts) for _ in range(int(sizes[0]))))


def _parts(value: Value, depth: int) -> list[Tensor]:
    if not depth:
        return [plain(value)]
    parts = value.parts if isinstance(value, Stacked) and value.axis == 1 else ops.unstack(plain(value), axis=1)
    return [tensor for part in parts for tensor in _parts(part, depth - 1)]
