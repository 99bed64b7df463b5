"""Integers and scales in hand-made graphs: each layout, for each kind of kernel, and the values that come out."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import helper, numpy_helper

from keras_transformer.export import Learned, QuantizationError
from keras_transformer.export.onnx.quantization.quantize import quantize_files
from keras_transformer.export.onnx.weights import weight_pairs as onnx_pairs
from keras_transformer.export.quantization.known_blocks import LearnedBlocks
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.quantization.quantize import quantize_tree
from keras_transformer.export.tflite.tree import read, schema, write
from keras_transformer.export.tflite.weights.weight_pairs import tree_pairs
from keras_transformer.export.verification.quantized.learned_integers import LearnedIntegers
from keras_transformer.export.verification.quantized.weights import compare
from keras_transformer.quantization import QuantizedWeights, WeightScheme
from keras_transformer.quantization.rounding import round_rows

RANDOM = np.random.default_rng(0)
ROWS = 4


def rounded(count, width, *scheme):
    return round_rows(RANDOM.normal(size=(count, width)), WeightScheme(*scheme))


PRODUCTS = {
    "blocks_of_32": rounded(48, 96, 4, 32),
    "blocks_of_256": rounded(48, 512, 4, 256),
    "minima": rounded(48, 96, 4, 32, True),
    "large_minima": rounded(48, 128, 3, 64, True),
    "two_bits": rounded(48, 128, 2, 128),
    "rows": rounded(48, 96, 4, None),
    "odd_rows": rounded(48, 65, 4, None),
    "bytes": rounded(48, 128, 8, None),
    "odd_bytes": rounded(48, 65, 8, None),
    "blocks_of_bytes": rounded(48, 128, 8, 32),
    "large_blocks_of_bytes": rounded(48, 128, 8, 128),
}
# They are looked up, and multiply what was looked up.
TABLES = {
    "table_of_bytes": rounded(96, 64, 8, None),
    "table_of_rows": rounded(96, 64, 4, None),
    "table_of_odd_rows": rounded(96, 65, 4, None),
    "table_of_blocks": rounded(96, 64, 4, 32),
    "table_of_minima": rounded(96, 64, 4, 32, True),
    "table_of_blocks_of_bytes": rounded(96, 64, 8, 32),
}
QUANTIZATION = Learned(QuantizedWeights({**PRODUCTS, **TABLES}))
INPUTS = {
    f"x_{name}": RANDOM.normal(size=(ROWS, each.values.shape[1])).astype("float32") for name, each in PRODUCTS.items()
}
IDS = np.array([0, 95, 3, 1], "int32")


def check(found, most):
    """Compares products, of which the kernels round activations, and rows of tables, which are exact."""
    for name, blocks in PRODUCTS.items():
        expected = INPUTS[f"x_{name}"] @ blocks.values.T
        assert np.abs(found[f"y_{name}"] - expected).max() < most * np.abs(expected).max(), name
    for name, blocks in TABLES.items():
        rows = blocks.values[IDS]
        np.testing.assert_allclose(found[f"rows_{name}"], rows, rtol=1e-6, err_msg=name)
        expected = rows @ blocks.values.T
        assert np.abs(found[f"y_{name}"] - expected).max() < most * np.abs(expected).max(), name


def float_onnx(path):
    nodes, weights, outputs = [], [], []
    for name, blocks in {**PRODUCTS, **TABLES}.items():
        matrix, x = blocks.values, f"x_{name}"
        if name in TABLES:
            nodes += [helper.make_node("Gather", [name, "ids"], [f"rows_{name}"])]
            nodes += [helper.make_node("Transpose", [name], [f"{name}/turned"], perm=[1, 0])]
            x, outputs = f"rows_{name}", [*outputs, f"rows_{name}"]
        weights.append(numpy_helper.from_array(matrix if name in TABLES else np.ascontiguousarray(matrix.T), name))
        nodes.append(helper.make_node("MatMul", [x, f"{name}/turned" if name in TABLES else name], [f"y_{name}"]))
        outputs.append(f"y_{name}")
    inputs = [helper.make_tensor_value_info(name, 1, x.shape) for name, x in INPUTS.items()]
    inputs.append(helper.make_tensor_value_info("ids", 6, IDS.shape))
    ends = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    graph = helper.make_graph(nodes, "graph", inputs, ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))


@pytest.mark.parametrize("contrib_ops", [True, False])
@pytest.mark.parametrize("names", [["serve"], ["decode"], ["encode", "decode"]], ids="-".join)
def test_onnx(tmp_path, names, contrib_ops):
    """The kernels of encoders, of decoders, and of both with the same weights."""
    files, folders = {name: f"{name}.onnx" for name in names}, [tmp_path / each for each in ("floats", "integers")]
    folders[0].mkdir()
    for file in files.values():
        float_onnx(folders[0] / file)
    shutil.copytree(*folders)
    quantize_files(folders[1], files, QUANTIZATION, contrib_ops=contrib_ops)
    gate = LearnedIntegers("onnx", QUANTIZATION)
    found = compare("onnx", onnx_pairs.weight_pairs(*folders, files), True, gate)
    gate.check_all()
    assert (found["equal"], found["unaccounted"]) == (0, [])
    for file in files.values():
        session = onnxruntime.InferenceSession(str(folders[1] / file))
        results = session.run(None, {**INPUTS, "ids": IDS})
        check(dict(zip([each.name for each in session.get_outputs()], results, strict=True)), 0.03)


def float_tflite(signature):
    types = schema()
    model, subgraph, entry = types.ModelT(), types.SubGraphT(), types.SignatureDefT()
    model.version, model.buffers, model.operatorCodes = 3, [types.BufferT()], []
    subgraph.tensors, subgraph.operators = [], []
    graph, operators = Graph(model, subgraph), subgraph.operators
    ids = graph.add_tensor("ids", "INT32", IDS.shape)
    inputs, outputs = [ids], []
    for name, blocks in {**PRODUCTS, **TABLES}.items():
        matrix, options = blocks.values, types.FullyConnectedOptionsT()
        options.keepNumDims = True
        is_table = name in TABLES
        x = graph.add_tensor(f"{'rows' if is_table else 'x'}_{name}", "FLOAT32", (ROWS, matrix.shape[1]))
        weight = graph.add_constant(name, "FLOAT32", matrix)
        y = graph.add_tensor(f"y_{name}", "FLOAT32", (ROWS, len(matrix)))
        operators += [graph.operator("EMBEDDING_LOOKUP", (ids, weight), (x,))] if is_table else []
        operators.append(graph.operator("FULLY_CONNECTED", (x, weight, -1), (y,), options))
        outputs += [x, y] if is_table else [y]
        inputs += [] if is_table else [x]
    subgraph.inputs, subgraph.outputs = np.array(inputs, "int32"), np.array(outputs, "int32")
    entry.signatureKey, entry.subgraphIndex = signature.encode(), 0
    entry.inputs, entry.outputs = ([_tensor_map(graph, each) for each in group] for group in (inputs, outputs))
    model.subgraphs, model.signatureDefs = [subgraph], [entry]
    return write(model)


def _tensor_map(graph, index):
    found = schema().TensorMapT()
    found.name, found.tensorIndex = graph.tensors[index].name, index
    return found


@pytest.mark.parametrize("signature", ["serve", "decode"])
def test_tflite(signature):
    content = float_tflite(signature)
    model = read(content)
    quantize_tree(model, QUANTIZATION)
    gate = LearnedIntegers("tflite", QUANTIZATION)
    found = compare("tflite", tree_pairs(read(content), model), True, gate)
    gate.check_all()
    assert (found["equal"], found["unaccounted"]) == (0, [])
    runner = Interpreter(model_content=write(model), num_threads=1).get_signature_runner(signature)
    check(runner(**INPUTS, ids=IDS), 0.02)


def test_a_weight_that_stays_float_is_named():
    content = float_tflite("serve")
    model = read(content)
    careful = Learned(QUANTIZATION.source, keep_float=("odd_rows", "table_of_bytes"))
    quantize_tree(model, careful)
    for quantization, missing in ((careful, None), (QUANTIZATION, "odd_rows, table_of_bytes")):
        gate = LearnedIntegers("tflite", quantization)
        assert compare("tflite", tree_pairs(read(content), model), True, gate)["equal"] == 2
        if missing is None:
            gate.check_all()
            continue
        with pytest.raises(
            QuantizationError, match=f"tflite: {missing}: the file does not have the integers of the quant"
        ):
            gate.check_all()


def test_what_a_matrix_is_stored_as():
    known = LearnedBlocks(QUANTIZATION.source, "weights")
    kinds = [known.kind(name) for name in ("minima", "rows", "blocks_of_bytes")]
    assert kinds == ["4 bits, blocks of 32 with minima", "4 bits, a scale for each row", "8 bits, blocks of 32"]
