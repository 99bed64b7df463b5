"""The operators of ONNX that move values without computing, in Core ML's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.coreml.builder import Builder, Var, kind_of, value_of

Options = Mapping[str, Any]


def _reshape(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, shape = inputs
    given = [int(each) for each in value_of(shape).ravel()]
    sizes = [x.shape[axis] if size == 0 and not options.get("allowzero") else size for axis, size in enumerate(given)]
    if -1 in sizes:
        known = int(np.prod([each for each in sizes if each >= 0]))
        sizes[sizes.index(-1)] = int(np.prod(x.shape)) // known
    return build.reshape(x, sizes)


def _axes(inputs: Sequence[Var], options: Options) -> list[int] | None:
    given = options.get("axes") if len(inputs) < 2 or inputs[1] is None else value_of(inputs[1]).ravel()
    return None if given is None else [int(each) for each in given]


def _squeeze(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, axes = inputs[0], _axes(inputs, options)
    rank = len(x.shape)
    dropped = {axis for axis, size in enumerate(x.shape) if size == 1} if axes is None else {a % rank for a in axes}
    return build.reshape(x, [size for axis, size in enumerate(x.shape) if axis not in dropped])


def _unsqueeze(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, axes = inputs[0], _axes(inputs, options) or []
    rank = len(x.shape) + len(axes)
    added, sizes = {axis % rank for axis in axes}, iter(x.shape)
    return build.reshape(x, [1 if axis in added else next(sizes) for axis in range(rank)])


def _flatten(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    shape, axis = inputs[0].shape, options.get("axis", 1)
    return build.reshape(inputs[0], (int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))))


def _transpose(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    return build.transpose(inputs[0], options.get("perm") or range(len(inputs[0].shape))[::-1])


def _expand(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, shape = inputs
    return build.broadcast(x, np.broadcast_shapes(x.shape, tuple(map(int, value_of(shape).ravel()))))


def _tile(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    return build.tile(x=inputs[0], reps=[int(each) for each in value_of(inputs[1]).ravel()])


def _concat(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    values = [build.cast(each, "int32") if kind_of(each) == "bool" else each for each in inputs]
    found = values[0] if len(values) == 1 else build.concat(values=values, axis=options["axis"])
    return build.cast(found, "bool") if kind_of(inputs[0]) == "bool" else found


def _split(build: Builder, inputs: Sequence[Var], options: Options) -> list[Var]:
    x, *rest = inputs
    axis = options.get("axis", 0)
    if rest and rest[0] is not None:
        return list(build.split(x=x, split_sizes=[int(each) for each in value_of(rest[0]).ravel()], axis=axis))
    count = options.get("num_outputs")
    if count is None:
        raise NotImplementedError("Split without sizes")
    size = -(-x.shape[axis] // count)  # The last part is smaller.
    return list(build.split(x=x, split_sizes=[*[size] * (count - 1), x.shape[axis] - size * (count - 1)], axis=axis))


def _slice(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, starts, ends, *rest = inputs
    first, last = (value_of(each).ravel() for each in (starts, ends))
    axes = value_of(rest[0]).ravel() if rest and rest[0] is not None else range(len(first))
    steps = value_of(rest[1]).ravel() if len(rest) > 1 and rest[1] is not None else [1] * len(first)
    begin, end, stride = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    reversed_axes = []
    for axis, start, stop, step in zip(axes, first, last, steps, strict=True):
        axis, size = int(axis) % len(x.shape), x.shape[int(axis)]
        bounds = slice(int(start), int(stop) if abs(int(stop)) < 2**31 - 1 else None, int(step))
        if step < 0:
            chosen = range(size)[bounds]
            if len(chosen) != size:
                raise NotImplementedError("a part of an axis from its end")
            reversed_axes.append(axis)
            continue
        begin[axis], end[axis], stride[axis] = bounds.indices(size)
    found = x
    if begin != [0] * len(begin) or end != list(x.shape) or stride != [1] * len(stride):
        found = build.slice_by_index(x=x, begin=begin, end=end, stride=stride)
    return build.reverse(x=found, axes=reversed_axes) if reversed_axes else found


def _pad(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, sides, *rest = inputs
    if options.get("mode", b"constant") not in (b"constant", "constant") or (len(rest) > 1 and rest[1] is not None):
        raise NotImplementedError("Pad that repeats")
    counts = value_of(sides).ravel().reshape(2, -1)
    value = 0 if not rest or rest[0] is None else value_of(rest[0]).reshape(())
    kind, found = kind_of(x), build.cast(x, "int32") if kind_of(x) == "bool" else x
    for axis, (before, after) in enumerate(counts.T):
        parts = [found]
        for side, count in ((0, before), (len(parts), after)):
            if count:
                shape = [int(count) if each == axis else size for each, size in enumerate(found.shape)]
                filled = build.constant(np.full(shape, value, "float32" if kind == "fp32" else "int32"))
                parts.insert(side if side == 0 else len(parts), filled)
        found = build.concat(values=parts, axis=axis) if len(parts) > 1 else found
    return build.cast(found, kind)


def _gather(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    x, places = inputs
    kind, axis = kind_of(x), options.get("axis", 0)
    table = build.cast(x, "int32") if kind == "bool" else x
    if places.val is not None:
        known = np.asarray(places.val)
        places = build.constant(np.where(known < 0, known + x.shape[axis], known))
    if not places.shape:
        one = build.gather(x=table, indices=build.constant(np.asarray(places.val).reshape(1)), axis=axis)
        kept = [*x.shape[:axis], *x.shape[axis % len(x.shape) + 1 :]]
        return build.cast(build.reshape(one, kept), kind)
    return build.cast(build.gather(x=table, indices=places, axis=axis), kind)


def _gather_elements(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    return build.gather_along_axis(x=inputs[0], indices=inputs[1], axis=options.get("axis", 0))


def _gather_nd(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    return build.gather_nd(x=inputs[0], indices=inputs[1], batch_dims=options.get("batch_dims", 0))


def _scatter_nd(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    data, places, updates = inputs
    modes = {b"none": "update", b"add": "add", b"mul": "mul", b"max": "max", b"min": "min"}
    mode = modes[options.get("reduction", b"none")]
    return build.scatter_nd(data=data, indices=places, updates=updates, mode=mode)


def _scatter_elements(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    data, places, updates = inputs
    if options.get("reduction", b"none") not in (b"none", b"add"):
        raise NotImplementedError("ScatterElements with this reduction")
    mode = "add" if options.get("reduction") == b"add" else "update"
    return build.scatter_along_axis(data=data, indices=places, updates=updates, axis=options.get("axis", 0), mode=mode)


def _filled(build: Builder, inputs: Sequence[Var], options: Options) -> Var:
    from onnx import numpy_helper

    value = numpy_helper.to_array(options["value"]) if "value" in options else np.zeros(1, "float32")
    return build.constant(np.full(value_of(inputs[0]).ravel(), value.item()).astype(value.dtype))


REARRANGING: Mapping[str, Callable[[Builder, Sequence[Var], Options], Var | list[Var]]] = {
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
