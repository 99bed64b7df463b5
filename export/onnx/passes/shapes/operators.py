"""Shape inference of each operator, for `dims.Dims`."""

from collections.abc import Sequence

import onnx_ir as ir

from keras_transformer.export.onnx.passes.shapes.integers import Integers, Sizes, shapes_of, sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import divide, multiply

_NAMES = """
    Add Sub Mul Div Pow Max Min And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Where Mod Not Neg Abs Sqrt
    Reciprocal Erf Exp Log Tanh Sigmoid Relu Sin Cos Cast Identity Softmax Gelu Floor Ceil Round Sign Clip Softplus
    LayerNormalization RMSNormalization RotaryEmbedding IsNaN LeakyRelu Elu ScatterND TensorScatter CumSum
"""
ELEMENTWISE = set(_NAMES.split())
_FIRST_ONLY = {
    "LayerNormalization",
    "RMSNormalization",
    "RotaryEmbedding",
    "ScatterND",
    "TensorScatter",
    "Clip",
    "CumSum",
}
SEVERAL = ("TopK", "Split", "GroupQueryAttention")  # Their methods set the shapes of all outputs but the first.
_TO_THE_END = 10**9  # The converter's value for an open end.


class Operators(Integers):
    """Shape inference of operators, a method each, named after the operator.

    A method returns the sizes of the first output of a node, or None if they are unknown.
    """

    _at_most: dict[str, object]  # Name of a size -> a size that it does not exceed.

    def _set_shape(self, value: ir.Value, sizes: Sizes | None) -> None:
        raise NotImplementedError

    def _gather(self, node):
        data, indices = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
        axis = node.attributes.get_int("axis", 0)
        held, indices_held = self.numbers(node.inputs[0]), self.numbers(node.inputs[1])
        if isinstance(held, list) and indices_held is not None:
            chosen = [held[place] for place in (indices_held if isinstance(indices_held, list) else [indices_held])]
            return self._hold(node, chosen if isinstance(indices_held, list) else chosen[0])
        if data is None or indices is None:
            return None
        axis %= len(data)
        return [*data[:axis], *indices, *data[axis + 1 :]]

    def _concat(self, node):
        held = [self.numbers(value) for value in node.inputs]
        if any(isinstance(each, list) for each in held):
            held = [self._named(value) if each is None else each for value, each in zip(node.inputs, held, strict=True)]
        vectors = [each for each in held if isinstance(each, list)]
        if len(vectors) == len(held):
            return self._hold(node, [size for each in vectors for size in each])
        shapes = shapes_of(node.inputs)
        if shapes is None:
            return None
        axis = node.attributes.get_int("axis", 0) % len(shapes[0])
        along = [shape[axis] for shape in shapes]
        total = sum(along) if all(isinstance(size, int) for size in along) else None
        return [*shapes[0][:axis], total, *shapes[0][axis + 1 :]]

    def _gathernd(self, node):
        data, indices = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
        if data is None or not indices or not isinstance(indices[-1], int):
            return None
        return [*indices[:-1], *data[node.attributes.get_int("batch_dims", 0) + indices[-1] :]]

    def _topk(self, node):
        sizes, count = sizes_of(node.inputs[0]), self.numbers(node.inputs[1])
        if sizes is None or not isinstance(count, list):
            return None
        sizes[node.attributes.get_int("axis", -1)] = count[0]
        self._set_shape(node.outputs[1], sizes)
        return sizes

    def _tile(self, node):
        sizes, repeats = sizes_of(node.inputs[0]), self.numbers(node.inputs[1])
        if sizes is None or not isinstance(repeats, list):
            return None
        return [multiply(size, repeat) for size, repeat in zip(sizes, repeats, strict=True)]

    def _split(self, node):
        sizes, count = sizes_of(node.inputs[0]), len(node.outputs)
        axis = node.attributes.get_int("axis", 0)
        if sizes is None or len(node.inputs) > 1 or not isinstance(sizes[axis], int) or sizes[axis] % count:
            return None
        sizes[axis] //= count
        for output in node.outputs[1:]:
            self._set_shape(output, sizes)
        return sizes

    def _squeeze(self, node):
        held = self.numbers(node.inputs[0])
        sizes, axes = sizes_of(node.inputs[0]), self.numbers(node.inputs[1]) if len(node.inputs) > 1 else None
        if sizes is None or not isinstance(axes, list):
            return None
        if isinstance(held, list):
            self._hold(node, held[0])
        axes = {axis % len(sizes) for axis in axes}
        return [size for axis, size in enumerate(sizes) if axis not in axes]

    def _unsqueeze(self, node):
        held, sizes, axes = self.numbers(node.inputs[0]), sizes_of(node.inputs[0]), self.numbers(node.inputs[1])
        if sizes is None or not isinstance(axes, list):
            return None
        if held is not None and not isinstance(held, list):
            self._hold(node, [held])
        rank = len(sizes) + len(axes)
        axes, rest = {axis % rank for axis in axes}, iter(sizes)
        return [1 if axis in axes else next(rest) for axis in range(rank)]

    def _slice(self, node):
        sizes = sizes_of(node.inputs[0])
        starts, ends = (self.numbers(value) for value in node.inputs[1:3])
        axes = self.numbers(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else None
        if len(node.inputs) < 4 and sizes is not None and isinstance(starts, list):
            axes = list(range(len(starts)))
        steps = self.numbers(node.inputs[4]) if len(node.inputs) > 4 else [1]
        if sizes is None or not isinstance(axes, list):
            return None
        plain = isinstance(starts, list) and isinstance(ends, list) and set(steps or [None]) == {1}
        held = self.numbers(node.inputs[0])
        if plain and isinstance(held, list) and all(isinstance(each, int) for each in starts + ends):
            return self._hold(node, held[starts[0] : ends[0]])
        for place, axis in enumerate(axes):
            sizes[axis % len(sizes)] = self._cut(sizes[axis], starts[place], ends[place]) if plain else None
        return sizes

    def _cut(self, size, start, end):
        if all(isinstance(each, int) for each in (size, start, end)):
            return len(range(size)[start:end])
        if start != 0:
            return None
        if end == size or (isinstance(end, int) and end >= _TO_THE_END):
            return size
        name = next(self._fresh)
        if isinstance(end, str):
            self._at_most[name] = end
        return name

    def _reshape(self, node):
        sizes, target = sizes_of(node.inputs[0]), self.numbers(node.inputs[1])
        if not isinstance(target, list):
            count = sizes_of(node.inputs[1])
            return [None] * count[0] if count and isinstance(count[0], int) else None
        if sizes is None:
            return [None if size in (0, -1) else size for size in target]
        target = [sizes[axis] if size == 0 else size for axis, size in enumerate(target)]
        if -1 in target:
            rest = multiply(*(size for size in target if size != -1))
            target[target.index(-1)] = divide(multiply(*sizes), rest)
        held = self.numbers(node.inputs[0])
        if held is not None and len(target) < 2:
            self._hold(node, held if target and isinstance(held, list) else [held] if target else held)
        return target

    def _expand(self, node):
        target = self.numbers(node.inputs[1])
        sizes = sizes_of(node.inputs[0])
        return None if sizes is None or not isinstance(target, list) else self._broadcast([sizes, target])

    def _transpose(self, node):
        sizes = sizes_of(node.inputs[0])
        if sizes is None:
            return None
        return [sizes[axis] for axis in node.attributes.get_ints("perm", list(range(len(sizes)))[::-1])]

    def _elementwise(self, node):
        inputs = node.inputs[:1] if node.op_type in _FIRST_ONLY else node.inputs
        shapes = shapes_of(inputs)
        return None if shapes is None else self._broadcast(shapes)

    def _broadcast(self, shapes: Sequence[Sizes]) -> Sizes:
        rank = max(map(len, shapes))
        aligned = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
        return [self._common(sizes) for sizes in zip(*aligned, strict=True)]

    def _common(self, sizes):
        """The size that sizes of one axis broadcast to."""
        sizes = list(dict.fromkeys(size for size in sizes if size != 1))
        if len(sizes) < 2:
            return sizes[0] if sizes else 1
        for size in sizes:
            if isinstance(size, int):
                return size
            # A size that does not exceed another one, and broadcasts with it, is equal to it or 1.
            if all(other == size or self._at_most.get(other) == size for other in sizes):
                return size
        return None

    def _matmul(self, node):
        left, right = (sizes_of(value) for value in node.inputs)
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return None
        return [*self._broadcast([left[:-2], right[:-2]]), left[-2], right[-1]]

    def _gemm(self, node):
        left, right = (sizes_of(value) for value in node.inputs[:2])
        if left is None or right is None:
            return None
        row, column = node.attributes.get_int("transA", 0), 1 - node.attributes.get_int("transB", 0)
        return [left[row], right[column]]

    def _reducemean(self, node):
        sizes = sizes_of(node.inputs[0])
        axes = self.numbers(node.inputs[1]) if len(node.inputs) > 1 else None
        if sizes is None or not isinstance(axes, list):
            return None
        axes, keep = {axis % len(sizes) for axis in axes}, node.attributes.get_int("keepdims", 1)
        return [1 if axis in axes else size for axis, size in enumerate(sizes) if keep or axis not in axes]

    _reducesum = _reducemax = _reducemin = _reducemean

    def _attention(self, node):
        sizes, value = sizes_of(node.inputs[0]), sizes_of(node.inputs[2])
        if sizes is None or value is None:
            return None
        if len(sizes) == 4:
            return [*sizes[:3], value[3]]
        heads, value_heads = node.attributes.get_int("q_num_heads"), node.attributes.get_int("kv_num_heads")
        return [*sizes[:2], divide(multiply(value[2], heads), value_heads)]

    def _groupqueryattention(self, node):
        for cache, output in zip(node.inputs[3:5], node.outputs[1:], strict=True):
            self._set_shape(output, sizes_of(cache))
        return sizes_of(node.inputs[0])
