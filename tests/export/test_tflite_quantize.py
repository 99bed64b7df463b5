"""Quantized TFLite files: stored weights and outputs."""

import collections
import copy
import weakref

import numpy as np
import pytest
from tflite_files import constants, kinds, reference, run, share_of_scale

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.block_quantize import by_offset_block
from keras_transformer.export.quantization.options import Int8, Int8Static, WeightInt4
from keras_transformer.export.quantization.precisions import precision_of
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.quantization.blocks import bfloat16
from keras_transformer.export.tflite.quantization.quantize import quantize_tree, quantized
from keras_transformer.export.tflite.tree import read, size_of, write
from keras_transformer.export.tflite.weights.weight_pairs import tree_pairs
from keras_transformer.export.verification.quantized.weights import compare

# Two layers with four projections and two feed-forward kernels, and the embedding table.
TABLE, WEIGHTS = (300, 64), 13


@pytest.mark.parametrize(
    ("mode", "kind", "allowed"),
    [
        ("fp16", "FLOAT16", 0.005),
        ("int8", "INT8", 0.1),
        ("int8_static", "INT8", 0.15),
        ("int8_static_16", "INT8", 0.05),
        ("weight_int8", "INT8", 0.05),
        ("weight_int4", "INT4", 0.6),
    ],
)
@pytest.mark.parametrize("signature", ["serve", "serve_2x16"])
def test_computes_nearly_what_keras_computes(tflite, mode, kind, allowed, signature):
    tflite["encoder"]
    inputs, expected = reference(tflite.directory)
    (got,) = run(tflite.directory / f"{mode}.tflite", signature, inputs).values()
    assert 0 < share_of_scale(got, expected) < allowed
    found = constants(tflite.directory / f"{mode}.tflite")
    assert ("INT8" if mode == "weight_int4" else kind, TABLE) in found.values()
    counts = collections.Counter(each for each, _ in found.values())
    # Each is stored once for all signatures.
    # In 4 bits, tables have 8, and each other weight has offsets.
    assert counts[kind] in ((WEIGHTS - 1,) if mode == "weight_int4" else (WEIGHTS, WEIGHTS + 1))
    assert {shape for each, shape in found.values() if each == "FLOAT32"} <= {(32, 64), (1, 16, 64), (16, 64)}


def test_products_of_int8_read_their_weights_as_they_are(tflite):
    tflite["encoder"]
    # The position table is sliced, not gathered, and therefore dequantized first.
    assert kinds(tflite.directory / "int8.tflite").count("DEQUANTIZE") == 1
    assert kinds(tflite.directory / "weight_int8.tflite").count("DEQUANTIZE") == 1 + WEIGHTS - 1
    static = kinds(tflite.directory / "int8_static.tflite")
    assert static.count("DEQUANTIZE") == 1 + WEIGHTS - 1
    # Queries, keys and values share one quantized input in each of the two layers.
    assert static.count("QUANTIZE") == 8


def test_tables_are_looked_up_by_row(tflite):
    tflite["encoder"]
    assert "EMBEDDING_LOOKUP" in kinds(tflite.directory / "int8.tflite")
    assert "GATHER" in kinds(tflite.directory / "fp16.tflite")


def test_what_is_kept_in_float_is_named_by_its_keras_path(tflite):
    paths = tflite["encoder"]["paths"]
    assert "token_embedding/embeddings" in paths
    found = constants(tflite.directory / "kept.tflite").values()
    assert ("FLOAT32", TABLE) in found
    counts = collections.Counter(each for each in found if each[1] == (64, 64))
    assert counts["FLOAT32", (64, 64)] == 1
    everything = collections.Counter(constants(tflite.directory / "int8.tflite").values())
    assert counts["INT8", (64, 64)] == everything["INT8", (64, 64)] - 1


def test_weights_lie_in_the_file_once_and_small(tflite):
    tflite["decoder"]
    names = ("decoder/model.tflite", "decoder_int8.tflite", "decoder_weight_int4.tflite")
    sizes = [[size_of(each) for each in read((tflite.directory / name).read_bytes()).buffers] for name in names]
    weights = sum(np.prod(shape) * 4 for _, shape in constants(tflite.directory / names[0]).values())
    saved = [(sum(sizes[0]) - sum(each)) / weights for each in sizes[1:]]
    # Savings of three in four bytes; of weights without the table nearly seven in eight, minus scales and offsets.
    table = 4 * np.prod(TABLE) / weights
    assert 0.74 < saved[0] <= 0.75
    assert 0.75 < 0.75 * table + 0.82 * (1 - table) < saved[1] < 0.75 * table + 0.875 * (1 - table)


def test_every_signature_of_a_decoder_reads_the_same_weights(tflite):
    tflite["decoder"]
    found = constants(tflite.directory / "decoder_int8.tflite")
    assert [each for each in found.values() if each[1] == TABLE] == [("INT8", TABLE)]
    step = {"token_ids": np.full((1, 1), 7, "int32"), "cache_index": np.zeros(1, "int32")}
    outputs = {}
    for name in ("decoder/model.tflite", "decoder_int8.tflite", "decoder_weight_int4.tflite"):
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(str(tflite.directory / name)).get_signature_runner("decode_1")
        cache = {
            key: np.zeros(each["shape"], each["dtype"])
            for key, each in runner.get_input_details().items()
            if key not in step
        }
        outputs[name] = runner(**step, **cache)["logits"]
    expected = outputs.pop("decoder/model.tflite")
    for got in outputs.values():
        assert 0 < share_of_scale(got, expected) < 0.4


def test_a_decoder_and_its_loop_separate_outliers(tflite):
    """Of seven products all but that behind attention, whose outputs are averages; encoders have single products."""
    tflite["decoder"]
    assert "SPLIT" not in kinds(tflite.directory / "int8.tflite")
    before, after = (
        [
            collections.Counter(graph.kind(each) for each in graph.subgraph.operators)
            for graph in graphs(read((tflite.directory / name).read_bytes()))
        ]
        for name in ("decoder/model.tflite", "decoder_int8.tflite")
    )
    added = [new["SPLIT"] - old["SPLIT"] for old, new in zip(before, after, strict=True)]
    products = [each["FULLY_CONNECTED"] for each in after]
    # decode, decode_1, generate and its loop, prefill and prefill_4; the condition of the loop has none.
    assert sorted(products) == [0, 7, 7, 7, 7, 7, 7]
    assert [count - part for count, part in zip(products, added, strict=True)] == [count // 7 for count in products]


def test_a_loop_generates_what_the_float_file_does(tflite):
    tflite["decoder"]
    inputs = {"token_ids": np.int32([[3, 250, 17]]), "lengths": np.int32([3]), "max_new_tokens": np.int32(6)}
    names = ("decoder/model.tflite", "decoder_int8.tflite")
    expected, got = (run(tflite.directory / name, "generate", inputs) for name in names)
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)


def test_convolutions_are_quantized_by_output_channel(tflite):
    tflite["images"]
    found = constants(tflite.directory / "images_int8.tflite")
    assert ("INT8", (64, 4, 4, 3)) in found.values()
    images = {"images": np.random.default_rng(2).normal(size=(2, 16, 16, 3)).astype("float32")}
    (expected,) = run(tflite.directory / "images/model.tflite", "serve", images).values()
    (got,) = run(tflite.directory / "images_int8.tflite", "serve", images).values()
    assert 0 < share_of_scale(got, expected) < 0.05


def test_errors_name_what_is_wrong(tflite):
    tflite["encoder"]
    content = (tflite.directory / "encoder/model.tflite").read_bytes()
    with pytest.raises(QuantizationError, match="'nothing/\\*' matches none"):
        quantized(content, Int8(keep_float="nothing/*"))
    with pytest.raises(QuantizationError, match="blocks of 16 have no kernel"):
        quantized(content, WeightInt4(block_size=16))
    with pytest.raises(QuantizationError, match="no signature takes the calibration example"):
        quantized(content, Int8Static([{"token_ids": np.zeros((2, 8), "int32")}]))
    with pytest.raises(QuantizationError, match="calibration data are empty"):
        quantized(content, Int8Static([]))


def test_scales_of_four_bits_have_the_precision_of_bfloat16():
    rows = np.random.default_rng(3).normal(size=(4, 96)).astype("float32")
    codes, scale, offset = by_offset_block(rows, 32, bfloat16)
    assert (scale > 0).all()
    np.testing.assert_array_equal(bfloat16(scale.astype("float32")), scale)
    values = (codes - np.float32(8)) * scale[..., None] + offset[..., None]
    exact = by_offset_block(rows, 32)
    best = (exact[0] - np.float32(8)) * exact[1][..., None] + exact[2][..., None]
    error, least = (np.square(each.reshape(rows.shape) - rows).mean() for each in (values, best))
    assert error < 1.05 * least


def test_offsets_of_blocks_are_a_product_of_their_own(tflite):
    """Queries, keys and values of a layer read the same sums of blocks."""
    tflite["encoder"]
    before, after = (
        collections.Counter(kinds(tflite.directory / f"{mode}.tflite")) for mode in ("int8", "weight_int4")
    )
    # In each of two layers four activations are read by six products.
    assert after["ADD"] - before["ADD"] == 12
    assert after["FULLY_CONNECTED"] - before["FULLY_CONNECTED"] == 12 + 8
    inputs, expected = reference(tflite.directory)
    (got,) = run(tflite.directory / "weight_int4.tflite", "serve", inputs).values()
    assert np.sqrt(np.mean((got - expected) ** 2)) < 0.25 * np.sqrt(np.mean(expected**2))


class _Content:
    """The content of a buffer, which is computed each time it is read; `live` counts the bytes that are in memory."""

    live = most = reads = 0

    def __init__(self, content):
        self._content = bytes(content)

    def __len__(self):
        return len(self._content)

    def __array__(self, dtype=None, copy=None):
        array = np.frombuffer(bytearray(self._content), "uint8")
        _Content.reads += 1
        _Content.live += array.nbytes
        _Content.most = max(_Content.most, _Content.live)
        weakref.finalize(array, self._freed, array.nbytes)
        return array

    @staticmethod
    def _freed(count):
        _Content.live -= count


@pytest.mark.parametrize("mode", ["int8", "weight_int4"])
def test_a_tree_of_lazy_weights_is_quantized_one_weight_at_a_time(tflite, mode):
    tflite["encoder"]
    content = (tflite.directory / "encoder" / "model.tflite").read_bytes()
    model = read(content)
    for buffer in model.buffers:
        if size_of(buffer) >= 4096:
            buffer.data = _Content(buffer.data)
    sizes = [size_of(buffer) for buffer in model.buffers if isinstance(buffer.data, _Content)]
    floats = copy.deepcopy(model, {id(buffer.data): buffer.data for buffer in model.buffers})
    _Content.most = _Content.reads = 0
    quantize_tree(model, precision_of(mode))
    assert _Content.reads >= len(sizes) > 8
    assert _Content.most <= 2 * max(sizes) < sum(sizes)
    assert sum(isinstance(buffer.data, _Content) for buffer in model.buffers) <= len(sizes) - WEIGHTS
    assert write(model) == quantized(content, precision_of(mode))
    found = compare("tflite", tree_pairs(floats, model))
    assert found["rounded"] >= WEIGHTS
    assert not found["unaccounted"]
