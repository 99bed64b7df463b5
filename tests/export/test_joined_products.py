"""Products by blocks of the same activations are computed as one; their values and the weights behind them stay."""

import collections

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.graph import put_first
from keras_transformer.export.onnx.quantization.joined_products import Joiner
from keras_transformer.export.onnx.weights.dequantize import ConstantReader
from keras_transformer.export.onnx.weights.product_weights import product_weight

WIDTH, HEADS, KEY_HEADS, HEAD = 64, 4, 2, 16
CONTRIB = "com.microsoft"
ATTENTION = {"query": HEADS * HEAD, "key": KEY_HEADS * HEAD, "value": KEY_HEADS * HEAD}
FEEDFORWARD = {"gate": 96, "hidden": 80}


class Graph:
    """A graph of products of `x` `(B, 64)` by blocks of 32."""

    def __init__(self, has_offsets, has_biases):
        self.random = np.random.default_rng(0)
        self.has_offsets, self.has_biases = has_offsets, has_biases
        self.nodes, self.constants = [], []
        ones = (np.arange(WIDTH)[:, None] // 32 == np.arange(2)).astype("float32")
        self.add("MatMul", ["x", self.constant("ones", ones)], ["sums"])

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, name, *shape):
        return self.constant(name, self.random.normal(size=shape).astype("float32"))

    def add(self, op, inputs, outputs, domain="", **options):
        self.nodes.append(helper.make_node(op, inputs, outputs, outputs[0], domain=domain, **options))

    def product(self, name, count):
        codes = self.constant(f"{name}.codes", self.random.integers(0, 256, (count, 2, 16), dtype="uint8"))
        names = [f"{name}/scaled"] * self.has_offsets + [f"{name}/product"] * self.has_biases + [name]
        options = {"K": WIDTH, "N": count, "bits": 4, "block_size": 32, "accuracy_level": 1}
        self.add("MatMulNBits", ["x", codes, self.normal(f"{name}.scale", count, 2)], names[:1], CONTRIB, **options)
        if self.has_offsets:
            self.add("Gemm", ["sums", self.normal(f"{name}.offset", 2, count), names[0]], names[1:2])
        if self.has_biases:
            self.add("Add", [names[-2], self.normal(f"{name}.bias", count)], names[-1:])

    def attention(self):
        for name, count in ATTENTION.items():
            self.product(name, count)
            self.add("Reshape", [name, self.constant(f"{name}.shape", np.array([-1, 1, count]))], [f"{name}_3"])
        inputs = ["query_3", "key_3", "value_3", "past_key", "past_value", "last", "total"]
        options = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "scale": 0.1}
        self.add("GroupQueryAttention", inputs, ["attended", "new_key", "new_value"], CONTRIB, **options)

    def feedforward(self):
        for name, count in FEEDFORWARD.items():
            self.product(name, count)

    def model(self, *results):
        cache = ["B", KEY_HEADS, "L", HEAD]
        inputs = {"x": ["B", WIDTH], "past_key": cache, "past_value": cache}
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        values += [helper.make_tensor_value_info("last", TensorProto.INT32, ["B"])]
        values += [helper.make_tensor_value_info("total", TensorProto.INT32, [1])]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
        graph = helper.make_graph(self.nodes, "g", values, outputs, self.constants)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def joined(model, is_single):
    """The model with joined products, and its operators."""
    changed, top = ir.from_proto(model), {}
    Joiner(changed.graph, top).run(is_single)
    put_first(changed.graph, top.values())
    after = ir.to_proto(changed)
    return after, collections.Counter(node.op_type for node in after.graph.node)


def results(model):
    random = np.random.default_rng(1)
    arrays = {"x": (2, WIDTH), "past_key": (2, KEY_HEADS, 5, HEAD), "past_value": (2, KEY_HEADS, 5, HEAD)}
    feeds = {name: random.normal(size=shape).astype("float32") for name, shape in arrays.items()}
    feeds |= {"last": np.array([3, 1], "int32"), "total": np.array([4], "int32")}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})


def assert_same_weights(folder, before, after, names):
    """The matrices behind the products, as the check of a file's weights reads them."""
    readers = []
    for label, model in (("before", before), ("after", after)):
        onnx.save(model, folder / f"{label}.onnx")
        readers.append(ConstantReader(folder / f"{label}.onnx"))
    for name in names:
        expected, found = (product_weight(reader, reader.find(name)) for reader in readers)
        np.testing.assert_array_equal(found.values, expected.values)
        assert readers[1].fingerprint(readers[1].find(name)) is not None


@pytest.mark.parametrize("has_offsets", [False, True])
@pytest.mark.parametrize("has_biases", [False, True])
def test_projections_of_attention_are_packed(tmp_path, has_offsets, has_biases):
    graph = Graph(has_offsets, has_biases)
    graph.attention()
    before = graph.model("attended")
    after, found = joined(before, is_single=False)
    assert (found["MatMulNBits"], found["Gemm"], found["Add"]) == (1, has_offsets, has_biases)
    (attention,) = [node for node in after.graph.node if node.op_type == "GroupQueryAttention"]
    assert list(attention.input[1:3]) == ["", ""]
    np.testing.assert_allclose(results(after)[0], results(before)[0], rtol=1e-5, atol=1e-5)
    suffix = "/product" if has_biases else ""
    assert_same_weights(tmp_path, before, after, [f"{name}{suffix}" for name in ATTENTION])


def test_products_of_a_single_token_are_cut_apart(tmp_path):
    graph = Graph(has_offsets=True, has_biases=False)
    graph.feedforward()
    before = graph.model("gate", "hidden")
    after, found = joined(before, is_single=True)
    assert (found["MatMulNBits"], found["Gemm"], found["Split"]) == (1, 1, 1)
    for expected, value in zip(results(before), results(after), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    assert_same_weights(tmp_path, before, after, FEEDFORWARD)
    assert joined(before, is_single=False)[1]["MatMulNBits"] == 2


def test_a_projection_that_something_else_reads_stays():
    graph = Graph(has_offsets=False, has_biases=False)
    graph.attention()
    assert joined(graph.model("attended", "key"), is_single=False)[1]["MatMulNBits"] == 3
