"""A graph as text: each node is a line of Python, so that a graph is built, computed, cut and printed as what it is."""

import ast
import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from keras_transformer import attention, blocks, feedforward, recurrence

# What a call makes whose result is called: `layers.Dense(3)` in `layers.Dense(3)(x)`.
_MAKERS = ("layers.", "attention.", "blocks.", "feedforward.", "recurrence.", "layer_case(")
_HEAD = """import keras
import numpy as np
from keras import layers, ops

from keras_transformer import attention, blocks, feedforward, recurrence
from keras_transformer.export import export, load
"""


def layer_case(name, number):
    """The layer of a case of `layer_cases.py`."""
    from layer_cases import CASES

    return CASES[name][number].build()


def function_case(name, label):
    """The function of a case of `keras_functions`, of a list of tensors or of one."""
    from keras_functions import CASES

    function = CASES[name, label].function
    return lambda tensors: function(*tensors) if isinstance(tensors, (list, tuple)) else function(tensors)


_NAMES = {
    **{"keras": keras, "np": np, "layers": layers, "ops": ops, "attention": attention, "blocks": blocks},
    **{"feedforward": feedforward, "recurrence": recurrence, "layer_case": layer_case, "function_case": function_case},
}


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of a graph.

    Args:
        name: its name.
        shape: its sizes, the batch first; None where they are dynamic.
        dtype: its type.
    """

    name: str
    shape: tuple
    dtype: str

    def code(self):
        """Its line of Python."""
        return f'{self.name} = keras.Input(batch_shape={self.shape}, dtype="{self.dtype}", name="{self.name}")'


@dataclasses.dataclass(frozen=True)
class Node:
    """A tensor that a graph computes.

    Args:
        name: its name.
        text: a Python expression, with `{0}`, `{1}`, ... for the tensors that it reads.
        sources: the names of those.
    """

    name: str
    text: str
    sources: tuple

    def code(self):
        """Its line of Python."""
        return f"{self.name} = {self.expression}"

    @property
    def expression(self):
        """The expression with the names of tensors."""
        text = self.text
        for number, source in enumerate(self.sources):
            text = text.replace(f"{{{number}}}", source)
        return text


@dataclasses.dataclass(frozen=True)
class Graph:
    """Inputs, nodes in an order in which they can be computed, and the names of the tensors that are outputs."""

    inputs: tuple
    nodes: tuple
    outputs: tuple

    def needed(self):
        """The graph without what no output depends on."""
        wanted = set(self.outputs)
        for node in reversed(self.nodes):
            if node.name in wanted:
                wanted.update(node.sources)
        keep = [tuple(each for each in part if each.name in wanted) for part in (self.inputs, self.nodes)]
        return Graph(*keep, self.outputs)

    def code(self, seed, format, arrays=None):
        """A script that exports the graph and compares a file with Keras."""
        given = arrays or {each.name: np.zeros([size or 2 for size in each.shape], each.dtype) for each in self.inputs}
        values = [f"    {name!r}: np.array({_said(array)}, {array.dtype.name!r})," for name, array in given.items()]
        is_case = any("_case(" in node.text for node in self.nodes)
        inputs = ", ".join(each.name for each in self.inputs)
        outputs = ", ".join(f'"{name}": {name}' for name in self.outputs)
        lines = [
            _HEAD
            + ("from random_graphs.graph import function_case, layer_case  # In the folder `benchmarks`.\n" * is_case),
            f"keras.utils.set_random_seed({seed})",
            *(each.code() for each in (*self.inputs, *self.nodes)),
            f"model = keras.Model([{inputs}], {{{outputs}}})",
            f"random = np.random.default_rng({seed})",
            "for each in model.weights:",
            '    if "float" in each.dtype:',
            "        noise = 0.3 * random.normal(size=each.shape)",
            "        each.assign(each + (noise if each.trainable else abs(noise)))",
            "arrays = {",
            *values,
            "}",
            f'print(export(model, "/tmp/random_model", ["{format}"], progress=False))',
            "print(model(arrays, training=False))",
            f'print(load("/tmp/random_model", "{format}")(arrays))',
        ]
        return "\n".join(lines) + "\n"


def _said(array):
    text = repr(array.tolist())
    return text.replace("nan", "np.nan").replace("inf", "np.inf")


class Program:
    """A graph that was built.

    Args:
        graph: `Graph`.
        seed: int, of the weights.

    Attributes:
        graph: the graph.
        model: its Keras model, whose outputs have the names of the tensors.
    """

    def __init__(self, graph, seed):
        keras.utils.set_random_seed(seed)
        self.graph, self._scope = graph, Scope()
        tensors = {}
        for each in graph.inputs:
            tensors[each.name] = keras.Input(batch_shape=each.shape, dtype=each.dtype, name=each.name)
        for node in graph.nodes:
            tensors[node.name] = self._scope(node, tensors)
        self.model = keras.Model(
            [tensors[each.name] for each in graph.inputs], {name: tensors[name] for name in graph.outputs}
        )
        random = np.random.default_rng(seed)
        for each in self.model.weights:
            if "float" in each.dtype:
                noise = 0.3 * random.normal(size=each.shape)
                each.assign(each + (noise if each.trainable else abs(noise)))

    def outputs(self, arrays):
        """What Keras computes of arrays by the names of inputs; raises what that raises, or says of their shapes."""
        self.model({name: keras.KerasTensor(array.shape, array.dtype.name) for name, array in arrays.items()})
        tensors = {name: ops.convert_to_tensor(array) for name, array in arrays.items()}
        return {name: np.asarray(each) for name, each in self.model(tensors, training=False).items()}

    def compiled(self, arrays, output):
        """What Keras computes of an output where XLA compiles all that it reads; raises what that raises."""
        part = keras.Model(self.model.inputs, self.model.output[output])
        function = tf.function(lambda *given: part(given, training=False), autograph=False, jit_compile=True)
        return np.asarray(function(*(ops.convert_to_tensor(arrays[each.name]) for each in self.graph.inputs)))

    def tensors(self, arrays, change=lambda node, tensor: tensor):
        """All tensors, computed node by node.

        Args:
            arrays: dict of the name of an input to its values.
            change: of a node, or an input, and its tensor: returns what takes the place of it.
        """
        found = {each.name: change(each, ops.convert_to_tensor(arrays[each.name])) for each in self.graph.inputs}
        for node in self.graph.nodes:
            found[node.name] = change(node, self._scope(node, found))
        return found


class Scope:
    """Evaluates nodes, each with layers of its own, which the first call makes."""

    def __init__(self):
        self._layers = {}

    def __call__(self, node, tensors):
        """The tensor of a node, of the tensors by name that it reads."""
        makers, code = _compiled(node.text)
        if node.name not in self._layers:
            self._layers[node.name] = {name: eval(make, dict(_NAMES)) for name, make in makers.items()}
        given = {f"_{number}": tensors[source] for number, source in enumerate(node.sources)}
        return eval(code, {**_NAMES, **self._layers[node.name], **given})


@functools.cache
def _compiled(text):
    """The code that makes the layers of a node, by name, and the code of the node that calls them."""
    for number in range(8):
        text = text.replace(f"{{{number}}}", f"_{number}")
    makers = {}

    class Called(ast.NodeTransformer):
        def visit_Call(self, call):
            self.generic_visit(call)
            if isinstance(call.func, ast.Call) and ast.unparse(call.func).startswith(_MAKERS):
                name = f"_layer{len(makers)}"
                makers[name] = compile(ast.Expression(call.func), text, "eval")
                call.func = ast.copy_location(ast.Name(name, ast.Load()), call.func)
            return call

    tree = ast.fix_missing_locations(Called().visit(ast.parse(text, mode="eval")))
    return makers, compile(tree, text, "eval")
