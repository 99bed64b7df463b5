"""TFLite files of one operator on which LiteRT 2.3 crashes or reads outside its memory: refused before it allocates."""

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_transformer.export.tflite.flatbuffer.checks import check_flatbuffer
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.export.tflite.tree import read, schema, write

LEAST, LARGEST = -(2**31), 2**31 - 1
IMAGE = np.ones((1, 4, 4, 2), "float32")


def built(kind, inputs, options=None, outputs=1, **fields):
    """A file with one operator.

    Args:
        kind: name of the operator.
        inputs: arrays; all but the first floats are constants.
        options: name of the table of its options.
        fields: values of that table.
    """
    parts = schema()
    graph = parts.SubGraphT(inputs=np.int32([]), tensors=[], operators=[parts.OperatorT()])
    model = parts.ModelT(version=3, buffers=[parts.BufferT()], subgraphs=[graph])
    types = {np.dtype("float32"): 0, np.dtype("int32"): 2, np.dtype("int64"): 4}
    is_given = next((place for place, array in enumerate(inputs) if array.dtype == "float32"), 0)
    for place, array in enumerate([*inputs, *[inputs[is_given]] * outputs]):
        shape = np.int32(array.shape)
        tensor = parts.TensorT(shape=shape, type=types[array.dtype], name=f"t{place}", buffer=0, hasRank=True)
        graph.tensors.append(tensor)
        if place < len(inputs) and place != is_given:
            model.buffers.append(parts.BufferT(data=np.frombuffer(array.tobytes(), "uint8")))
            tensor.buffer = len(model.buffers) - 1
    operator = graph.operators[0]
    operator.inputs, graph.inputs = np.arange(len(inputs), dtype="int32"), np.int32([is_given])
    operator.outputs = graph.outputs = np.arange(len(inputs), len(inputs) + outputs, dtype="int32")
    if options is not None:
        operator.builtinOptionsType = getattr(parts.BuiltinOptions, options)
        operator.builtinOptions = getattr(parts, f"{options}T")(**fields)
    number = getattr(parts.BuiltinOperator, kind)
    code = parts.OperatorCodeT(builtinCode=number, deprecatedBuiltinCode=min(number, 127), version=1)
    model.operatorCodes = [code]
    return model


def split(count, outputs=1):
    return built("SPLIT", [np.int32(3), IMAGE], "SplitOptions", outputs, numSplits=count)


def pad(kind, *pairs):
    options = {"PAD": "PadOptions", "MIRROR_PAD": "MirrorPadOptions"}
    return built(kind, [IMAGE, np.int32([[0, 0], *pairs, [0, 0]])], options[kind])


def remainder(dtype, divisor):
    return built("FLOOR_MOD", [np.full(4, np.iinfo(dtype).min, dtype), np.full(4, divisor, dtype)], "FloorModOptions")


def convolution(kind, shape, bias, **fields):
    fields = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1} | fields
    options = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    return built(kind, [IMAGE, np.ones(shape, "float32"), np.zeros(bias, "float32")], options[kind], **fields)


def pool(kind, **fields):
    fields = {"strideW": 1, "strideH": 1, "filterWidth": 2, "filterHeight": 2} | fields
    return built(kind, [IMAGE], "Pool2DOptions", **fields)


def cut(begin, size):
    return built("SLICE", [IMAGE, np.int32([0, begin, 0, 0]), np.int32([1, size, 1, 1])], "SliceOptions")


def blocks(kind, size, pairs):
    options = {"SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions", "BATCH_TO_SPACE_ND": "BatchToSpaceNDOptions"}
    return built(kind, [IMAGE, np.int32([size, size]), np.int32(pairs)], options[kind])


def dense(bias):
    arrays = [np.ones((2, 8), "float32"), np.ones((4096, 8), "float32"), np.zeros(bias, "float32")]
    return built("FULLY_CONNECTED", arrays, "FullyConnectedOptions")


def radius(number):
    return built("LOCAL_RESPONSE_NORMALIZATION", [IMAGE], "LocalResponseNormalizationOptions", radius=number)


def without_options(model):
    model.subgraphs[0].operators[0].builtinOptionsType = 0
    model.subgraphs[0].operators[0].builtinOptions = None
    return model


def packed_at(builder, offset, size):
    schema().BufferStart(builder)
    schema().BufferAddOffset(builder, offset)
    schema().BufferAddSize(builder, size)
    return schema().BufferEnd(builder)


REFUSED = {
    "split by 0": (split(0), "cuts into 0 parts"),
    "split without options": (without_options(split(1)), "cuts into 0 parts"),
    "split by -1": (split(-1), "cuts into -1 parts"),
    "split into more": (split(2), "cuts into 2 parts and has 1 outputs"),
    "pad by the largest integer": (pad("PAD", [0, LARGEST], [0, 0]), "pads or crops"),
    "pad around the integers": (pad("PAD", [LARGEST, LARGEST], [0, 0]), "pads or crops"),
    "mirror around the integers": (pad("MIRROR_PAD", [LARGEST, LARGEST], [0, 0]), "pads or crops"),
    "pad by less": (pad("PAD", [-1, 0], [0, 0]), "pads or crops"),
    "remainder of int32": (remainder("int32", -1), "divides by -1"),
    "remainder of int64": (remainder("int64", -1), "divides by -1"),
    "short bias": (convolution("DEPTHWISE_CONV_2D", (1, 2, 2, 2), 1), "has a bias of 1 for 2 channels"),
    "short bias of channels": (convolution("CONV_2D", (3, 2, 2, 2), 2), "has a bias of 2 for 3 channels"),
    "short bias of units": (dense(1), "has a bias of 1 for 4096 channels"),
    "no stride": (convolution("CONV_2D", (3, 2, 2, 2), 3, strideH=0), "has StrideH 0"),
    "wide dilation": (convolution("CONV_2D", (3, 2, 2, 2), 3, dilationHFactor=LARGEST), "has a window of 2147483647"),
    "no window": (pool("MAX_POOL_2D", filterWidth=0), "has FilterWidth 0"),
    "negative window": (pool("AVERAGE_POOL_2D", filterHeight=-2), "has FilterHeight -2"),
    "radius below 0": (radius(-9), "has radius -9"),
    "radius around the integers": (radius(LARGEST), "has radius 2147483647"),
    "slice behind the end": (cut(9, 1), "begins at 9 along axis 1"),
    "slice beyond the end": (cut(1, 9), "takes 9 from 1 on along axis 1"),
    "slice before the begin": (cut(-9, 1), "begins at -9"),
    "blocks of 0": (blocks("SPACE_TO_BATCH_ND", 0, [[0, 0], [0, 0]]), "has blocks of"),
    "blocks padded by less": (blocks("SPACE_TO_BATCH_ND", 2, [[LARGEST, LARGEST], [-4, 0]]), "pads or crops"),
    "crop of less": (blocks("BATCH_TO_SPACE_ND", 1, [[-4, 0], [0, 0]]), "pads or crops"),
    "fewer than no values": (built("TOPK_V2", [IMAGE, np.int32(-9)], "TopKV2Options", 2), "has a count of"),
    "no pixels": (built("RESIZE_NEAREST_NEIGHBOR", [IMAGE, np.int32([0, 0])], "ResizeNearestNeighborOptions"), "sizes"),
}


def saved(model, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(write(model))
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_crash_are_refused(tmp_path, name):
    model, message = REFUSED[name]
    with pytest.raises(ValueError, match=rf"op 0 \([A-Z0-9_]+\) of graph 0 .*{message}"):
        check_flatbuffer(saved(model, tmp_path))


def test_a_runtime_does_not_start(tmp_path):
    with pytest.raises(ValueError, match="cuts into 0 parts"):
        TFLiteRuntime(str(saved(split(0), tmp_path)), "serve", 1)


ACCEPTED = {
    "split": split(2, outputs=2),
    "pad": pad("PAD", [1, 2], [0, 3]),
    "depthwise": convolution("DEPTHWISE_CONV_2D", (1, 2, 2, 2), 2),
    "channels": convolution("CONV_2D", (3, 2, 2, 2), 3, dilationHFactor=2),
    "pool": pool("MAX_POOL_2D"),
    "slice": cut(3, 1),
    "blocks": blocks("SPACE_TO_BATCH_ND", 2, [[0, 0], [2, 2]]),
    "dense": dense(4096),
    "radius": radius(3),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_numbers_are_computed(tmp_path, name):
    path = saved(ACCEPTED[name], tmp_path)
    check_flatbuffer(path)
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    interpreter.set_tensor(given["index"], np.ones(given["shape"], "float32"))
    interpreter.invoke()
    for each in interpreter.get_output_details():
        assert np.isfinite(interpreter.get_tensor(each["index"])).all()


@pytest.mark.parametrize("offset, size", [(2**64 - 8, 4 * 8 * 4096), (2**64 - 2**20, 2**20 + 16), (2**40, 16)])
def test_weights_before_the_file_are_refused(tmp_path, offset, size):
    """LiteRT adds the two numbers in 64 bits: their sum seems to be in the file."""
    content = saved(dense(4096), tmp_path).read_bytes()
    model = read(content)
    model.buffers[1].Pack = lambda builder: packed_at(builder, offset, size)
    builder = flatbuffers.Builder(2**20)
    builder.Finish(model.Pack(builder), b"TFL3")
    (tmp_path / "model.tflite").write_bytes(bytes(builder.Output()))
    with pytest.raises(ValueError, match="buffer 1 is outside the file"):
        check_flatbuffer(tmp_path / "model.tflite")


def test_data_of_other_files_is_refused(tmp_path):
    model = dense(4096)
    model.externalBufferGroups = [schema().ExternalBufferGroupT(name="/etc/passwd")]
    with pytest.raises(ValueError, match="it has data in other files"):
        check_flatbuffer(saved(model, tmp_path))


def test_sparse_tensors_are_refused(tmp_path):
    model = dense(4096)
    model.subgraphs[0].tensors[1].sparsity = schema().SparsityParametersT(traversalOrder=np.int32([0, 1]))
    with pytest.raises(ValueError, match="tensor 1 of graph 0 is sparse"):
        check_flatbuffer(saved(model, tmp_path))


def test_the_rest_of_an_axis_is_accepted(tmp_path):
    check_flatbuffer(saved(cut(2, -1), tmp_path))
