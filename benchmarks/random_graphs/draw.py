"""Drawing of a graph: nodes that Keras takes, one after another, each of what was drawn before it or of a new input."""

import random as random_module

import keras
import numpy as np
import tensorflow as tf

from .graph import Graph, Input, Node, Scope
from .regions import arrays_of
from .templates import TYPES, WEIGHTS, templates

_MOST_INPUTS, _ATTEMPTS = 3, 60
_MOST_ELEMENTS, _MOST_RANK, _LARGEST = 20_000, 5, 1e5
_OF_RANK = {
    0: ((),),
    1: ((None,),),
    2: ((None, 4), (None, 4), (None, 6), (None, 1), (3, 4)),
    3: ((None, None, 4), (None, 9, 4), (None, None, 3), (None, 8, 6), (2, 9, 4)),
    4: ((None, None, None, 3), (None, 11, 9, 4), (None, 8, 8, 2), (None, None, 9, 4)),
    5: ((None, 6, 7, 5, 2),),
}
# Sizes of the samples on which Keras must compute each node: one that is drawn for 9 only fails on the other.
_SAMPLES = ((3, (9, 10, 5, 5)), (1, (12, 9, 5, 5)))


class Drawing:
    """A graph that grows.

    Args:
        seed: int; one seed gives one graph.
        count: int. Nodes of it.
    """

    def __init__(self, seed, count):
        self._random = random_module.Random(seed)
        self._inputs, self._nodes = [], []
        self._symbols, self._samples = {}, [{} for _ in _SAMPLES]
        self._scope, self._templates = Scope(), templates()
        keras.utils.set_random_seed(seed)
        attempts = 0
        while len(self._nodes) < count and attempts < _ATTEMPTS * count:
            attempts += 1
            self._try()

    def graph(self):
        """The graph; its outputs are the tensors that nothing reads, and some others."""
        read = {source for node in self._nodes for source in node.sources}
        outputs = [node.name for node in self._nodes if node.name not in read or self._random.random() < 0.08]
        return Graph(tuple(self._inputs), tuple(self._nodes), tuple(outputs)).needed()

    def _try(self):
        """Adds a node, if Keras takes what is drawn."""
        group = self._random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        template = self._random.choice(self._templates[group])
        inputs, sources = [], []
        for number, kind in enumerate(template.takes):
            shape = template.shapes[number] if template.shapes else None
            source = self._source(kind, shape, sources, inputs)
            if source is None:
                return
            sources.append(source)
        node = Node(f"x{len(self._nodes)}", template.filled(self._random), tuple(sources))
        if self._takes(node, inputs):
            self._inputs += inputs
            self._nodes.append(node)

    def _source(self, kind, shape, sources, inputs):
        """The name of a tensor of a kind, or None: one that there is, or a new input, which is added to `inputs`."""
        known = {**self._symbols, **{each.name: _symbol(each) for each in inputs}}
        first = known[sources[0]] if sources else None
        found = [name for name, tensor in known.items() if _fits(tensor, kind, first, shape)]
        is_new = set(found) <= set(sources) or self._random.random() < 0.15
        if is_new and len(self._inputs) + len(inputs) < _MOST_INPUTS:
            made = self._input(f"i{len(self._inputs) + len(inputs)}", kind, first, shape)
            inputs.append(made)
            return made.name
        if not found:
            return None
        # Rather what nothing has read yet.
        read = {source for node in self._nodes for source in node.sources}
        return self._random.choices(found, [1 if name in read else 4 for name in found])[0]

    def _input(self, name, kind, first, shape):
        if kind in "=~":
            return Input(name, tuple(first.shape), first.dtype)
        dtype = self._random.choice(TYPES[kind[0]])
        if shape is None:
            rank = int(kind[1:]) if kind[1:] != "*" else self._random.choice((1, 2, 2, 3, 3, 3, 4))
            shape = self._random.choice(_OF_RANK[rank])
        return Input(name, tuple(shape), dtype)

    def _takes(self, node, inputs):
        """Whether Keras computes a node, in a graph and of samples, with the same shape."""
        symbols = {**self._symbols, **{each.name: _symbol(each) for each in inputs}}
        samples = []
        for number, (known, (batch, lengths)) in enumerate(zip(self._samples, _SAMPLES, strict=True)):
            arrays = arrays_of(inputs, "normal", batch, lengths, np.random.default_rng(number))
            samples.append({**known, **{name: tf.constant(array) for name, array in arrays.items()}})
        try:
            symbol = self._scope(node, symbols)
            tensors = [self._scope(node, sample) for sample in samples]
        except Exception:  # Of any library that Keras uses: the tensors are none for this node.
            return False
        if not keras.backend.is_keras_tensor(symbol) or not all(_is_of(tensor, symbol) for tensor in tensors):
            return False
        self._symbols = {**symbols, node.name: symbol}
        self._samples = [{**sample, node.name: each} for sample, each in zip(samples, tensors, strict=True)]
        return True


def _symbol(made):
    return keras.KerasTensor(made.shape, made.dtype)


def _fits(tensor, kind, first, shape):
    """Whether a tensor is of a kind."""
    if kind == "=":
        return tensor.dtype == first.dtype and tuple(tensor.shape) == tuple(first.shape)
    if kind == "~":
        pairs = zip(reversed(tensor.shape), reversed(first.shape), strict=False)
        return tensor.dtype == first.dtype and all(one == other or 1 in (one, other) for one, other in pairs)
    if tensor.dtype not in TYPES[kind[0]] or kind[1:] not in ("*", str(len(tensor.shape))):
        return False
    return shape is None or all(size in (None, own) for size, own in zip(shape[1:], tensor.shape[1:], strict=True))


def _is_of(tensor, symbol):
    """Whether a computed tensor is what Keras says in a graph, and of a size and of numbers to go on with."""
    if not tf.is_tensor(tensor) or tensor.dtype.name != symbol.dtype or len(tensor.shape) != len(symbol.shape):
        return False
    if any(size not in (None, own) for size, own in zip(symbol.shape, tensor.shape, strict=True)):
        return False
    array = np.asarray(tensor)
    if not 0 < array.size <= _MOST_ELEMENTS or array.ndim > _MOST_RANK:
        return False
    if array.dtype.kind == "f":
        finite = array[np.isfinite(array)]
        return finite.size > array.size / 2 and float(np.abs(finite).max()) < _LARGEST
    return array.dtype.name in ("bool", "int32", "int64", "uint8", "int8")


def drawn(seed):
    """The graph of a seed, of 3 to 10 nodes."""
    return Drawing(seed, random_module.Random(-seed - 1).randint(3, 10)).graph()
