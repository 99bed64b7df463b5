"""What each operator does to the sizes of its inputs, for `dims.Dims`."""

import operator

import onnx_ir as ir

from keras_transformer.export.onnx.products import divide, multiply

INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_OPERATORS = {"Add": operator.add, "Sub": operator.sub, "Max": max, "Min": min}
_NAMES = """
    Add Sub Mul Div Pow Max Min And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Where Mod Not Neg Abs Sqrt
    Reciprocal Erf Exp Log Tanh Sigmoid Relu Sin Cos Cast Identity Softmax Gelu Floor Ceil Round Sign Clip Softplus
    LayerNormalization RMSNormalization IsNaN LeakyRelu Elu ScatterND
"""
ELEMENTWISE = set(_NAMES.split())
_FIRST_ONLY = {"LayerNormalization", "RMSNormalization", "ScatterND", "Clip"}
_LONGEST = 8


def sizes_of(value):
    """The shape of a value as a list of ints and texts, or None where its rank is not known."""
    if value is None or value.shape is None:
        return None
    return [size if isinstance(size, int) else size.value for size in value.shape]


def constant(value):
    """A small constant as a numpy array, or None."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size > 2**20 else tensor.numpy()


class Operators:
    """Methods named after operators; each gives the sizes of the first output of a node, or None.

    A subclass gives `_fresh`, an iterator of new names, and the dicts `_numbers`, `_results` and `_at_most`.
    """

    # Integers that hold sizes.

    def numbers(self, value):
        """The sizes that an integer vector or scalar holds, or None."""
        if value in self._numbers:
            return self._numbers[value]
        array = constant(value)
        if array is None or array.dtype.kind not in "iu" or array.ndim > 1 or array.size > _LONGEST:
            return None
        return [int(each) for each in array] if array.ndim else int(array)

    def held(self, value):
        """The sizes that a computed integer vector or scalar holds, or None."""
        return self._numbers.get(value)

    def _named(self, value):
        """Names for the integers of a short vector of which nothing is known, the same whenever they are asked for."""
        sizes = sizes_of(value)
        if value.dtype not in INTEGERS or sizes is None or len(sizes) != 1 or sizes[0] not in range(_LONGEST):
            return None
        return self._numbers.setdefault(value, [next(self._fresh) for _ in range(sizes[0])])

    def _hold(self, node, held):
        if held is not None:
            self._numbers[node.outputs[0]] = held
            return [len(held)] if isinstance(held, list) else []
        return None

    def _shape(self, node):
        sizes = sizes_of(node.inputs[0])
        start, end = (node.attributes.get_int(name, default) for name, default in (("start", 0), ("end", None)))
        return self._hold(node, None if sizes is None else sizes[start:end])

    def _cast(self, node):
        held = self.numbers(node.inputs[0])
        if held is not None:
            self._hold(node, held)
        return sizes_of(node.inputs[0])

    def _identity(self, node):
        return self._cast(node)

    def _gather(self, node):
        data, indices = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
        axis = node.attributes.get_int("axis", 0)
        held, places = self.numbers(node.inputs[0]), self.numbers(node.inputs[1])
        if isinstance(held, list) and places is not None:
            chosen = [held[place] for place in (places if isinstance(places, list) else [places])]
            return self._hold(node, chosen if isinstance(places, list) else chosen[0])
        if data is None or indices is None:
            return None
        axis %= len(data)
        return [*data[:axis], *indices, *data[axis + 1 :]]

    def _concat(self, node):
        held = [self.numbers(value) for value in node.inputs]
        if any(isinstance(each, list) for each in held):
            held = [self._named(value) if each is None else each for value, each in zip(node.inputs, held, strict=True)]
        if all(isinstance(each, list) for each in held):
            return self._hold(node, [size for each in held for size in each])
        shapes = [sizes_of(value) for value in node.inputs]
        if any(shape is None for shape in shapes):
            return None
        axis = node.attributes.get_int("axis", 0) % len(shapes[0])
        along = [shape[axis] for shape in shapes]
        total = sum(along) if all(isinstance(size, int) for size in along) else None
        return [*shapes[0][:axis], total, *shapes[0][axis + 1 :]]

    def _computed(self, node):
        held = [self.numbers(value) for value in node.inputs]
        if len(held) == 2 and None not in held:
            self._hold(node, self._pairwise(node.op_type, *held))
        return self._elementwise(node)

    _add = _sub = _mul = _max = _min = _div = _computed

    def _pairwise(self, kind, first, second):
        if not isinstance(first, list) and not isinstance(second, list):
            return self._result(kind, first, second)
        length = max(len(each) if isinstance(each, list) else 1 for each in (first, second))
        rows = [each if isinstance(each, list) else [each] for each in (first, second)]
        rows = [row * length if len(row) == 1 else row for row in rows]
        return [self._result(kind, a, b) for a, b in zip(*rows, strict=True)]

    def _result(self, kind, first, second):
        """What an operator makes of two sizes; the same name for the same operator and sizes."""
        if kind == "Mul":
            return multiply(first, second)
        if isinstance(first, int) and isinstance(second, int) and kind in _OPERATORS:
            return _OPERATORS[kind](first, second)
        if (kind in ("Add", "Sub") and second == 0) or (kind in ("Max", "Min") and first == second):
            return first
        if kind == "Add" and first == 0:
            return second
        pair = (first, second) if kind in ("Sub", "Div") else tuple(sorted((first, second), key=str))
        if (kind, *pair) not in self._results:
            self._results[kind, *pair] = next(self._fresh)
        return self._results[kind, *pair]

    def _reduceprod(self, node):
        held = self.numbers(node.inputs[0])
        if not isinstance(held, list):
            return None
        product = multiply(*held)
        return self._hold(node, [product] if node.attributes.get_int("keepdims", 1) else product)

    # Shapes.

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
        if end == size:
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
        shapes = [sizes_of(value) for value in inputs]
        return None if any(shape is None for shape in shapes) else self._broadcast(shapes)

    def _broadcast(self, shapes):
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
            # What does not exceed a size is, where both fit, that size or 1.
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

    def _range(self, node):
        start, limit, step = (self.numbers(value) for value in node.inputs)
        return [limit] if start == 0 and step == 1 and limit is not None else [None]
