"""Models that an export refuses, and the remedies that their errors name: `remedy_cases.py OUT_DIRECTORY [NAME ...]`.

A case exports a model that is refused, with the remedy in the text of the error, and then applies it, as typed.
"""

import contextlib
import importlib
import os
import pathlib
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.append(str(pathlib.Path(__file__).parents[1] / "checkpoints"))

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from worker_cases import run_cases

from keras_transformer import checkpoints, load_model, models, quantization, tasks, text, training
from keras_transformer.export import errors, export, export_training, load, register_lowering, write_text_tflite
from keras_transformer.export.commands import main as cli
from keras_transformer.export.commands import model_files
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.operations.operation import Refused
from keras_transformer.export.operations.table import OPERATIONS
from keras_transformer.export.options import ExportOptions
from keras_transformer.export.quantization.options import FullInt8, Gguf, Int8, Int8Static, Learned, WeightInt4
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.verification.quantized.evaluation import Evaluation

HERE = pathlib.Path(__file__).parent
CASES = {}
ONES = np.ones((2, 4), "float32")


# Those in the table of operations.
TABLE = {text for each in OPERATIONS.values() for text in each.remedies.values()}
for _each in OPERATIONS.values():
    _lowerings = [how for format in _each.lowerings for how in _each.lowerings_in(format)]
    TABLE |= {how.remedy for how in _lowerings if isinstance(how, Refused)}


def case(remedy):
    """Decorator of the case of a `Remedy`, or of those in the table of operations that begin with some words."""

    def decorated(function):
        if isinstance(remedy, Remedy):
            CASES[remedy.name] = function
        elif any(text.startswith(remedy) for text in TABLE):
            CASES[remedy] = function
        return function

    return decorated


@contextlib.contextmanager
def refused(kind, remedy, *words):
    """Context in which an error must name a remedy, and words; yields a list that receives its text."""
    found, caught = [], []
    try:
        yield found
    except errors.ExportError as error:
        caught.append(type(error).__name__)
        found.append(str(error))
    assert caught == [kind], found or "it is not refused"
    said, entry = remedy, kind.lower()
    if isinstance(remedy, Remedy):
        said, entry = re.split("[{}]", remedy.text)[0], remedy.anchor
    for word in (said, *words):
        assert word in found[0], f"{found[0]} does not say {word}"
    assert found[0].endswith(f"(keras-transformer explain {entry})"), found[0]


def typed(found, start):
    """The value of the code in the text of an error that begins with some words."""
    text = found[0][found[0].index(start) :]
    for end in range(len(text), 0, -1):
        with contextlib.suppress(SyntaxError):
            return eval(text[:end], globals())
    raise AssertionError(text)


def go(model, out, formats="onnx", **options):
    return export(model, out / "bundle", formats, progress=False, **options)


def dense(**options):
    x = keras.Input((4,), name="x")
    return keras.Model(x, layers.Dense(3, name="dense")(x), **options)


def calling(function, shape=(4,), dtype="float32"):
    """A model of one layer that calls a function."""
    x = keras.Input(shape, dtype=dtype, name="x")
    return keras.Model(x, Calling(function, name="mine")(x))


class Calling(layers.Layer):
    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs):
        return self.function(inputs)

    def compute_output_shape(self, shape):
        return shape


class Difference(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, one, other):
        return self.dense(one) - self.dense(other)


class DifferenceOfRows(Difference):
    def call(self, one, other):
        return ops.stack([one[row] - other[row] for row in range(one.shape[0])])


def language_model(**options):
    size = models.Size(num_layers=1, hidden_dim=64, num_heads=2, intermediate_dim=128)
    return tasks.LanguageModel(models.Decoder(size, vocabulary_size=96), **options)


@case(Remedy.PATH)
def path(out):
    dense().save(out / "model.keras")
    with refused("InvalidModelError", Remedy.PATH, "model.keras"):
        go(out / "model.keras", out)
    go(load_model(out / "model.keras"), out)
    dense().export(out / "saved", verbose=False)
    folder = HERE.parent / "data" / "checkpoints" / "sentence-bert"
    for each in (str(out / "saved"), folder):
        with refused("InvalidModelError", Remedy.PATH, str(each)):
            go(each, out)
    go(layers.TFSMLayer(out / "saved", call_endpoint="serve"), out)
    go(checkpoints.from_huggingface(folder, verbose=0), out)


@case(Remedy.INPUTS)
def inputs(out):
    model, spec = Difference(), keras.InputSpec(shape=(None, 4))
    with refused("InvalidModelError", Remedy.INPUTS, "Difference"):
        go(model, out)
    go(model, out, options=ExportOptions(inputs={"one": spec, "other": keras.Input((4,))}))
    model = keras.Sequential([layers.Dense(2)])
    with refused("InvalidModelError", Remedy.INPUTS, "Sequential"):
        go(model, out)
    model(ONES)
    go(model, out)


@case(Remedy.ARGUMENTS)
def arguments(out):
    spec, module = tf.TensorSpec((None, 4)), tf.Module()
    module.serve = tf.function(lambda left, right: left - right, input_signature=[spec, spec])
    tf.saved_model.save(module, str(out / "saved"))
    layer = layers.TFSMLayer(out / "saved", call_endpoint="serve")
    with refused("InvalidModelError", Remedy.ARGUMENTS, "tfsm_layer"):
        go(layer, out)
    left, right = keras.Input((4,)), keras.Input((4,))
    go(keras.Model([left, right], layer(left, right=right)), out)


@case(Remedy.FUNCTIONAL)
def functional(out):
    from keras_transformer.export.spec.functional import check_model

    model = keras.Sequential([layers.Dense(2)], name="late")
    with refused("InvalidModelError", Remedy.FUNCTIONAL, "late"):
        check_model(model)
    model = keras.Sequential([keras.Input((4,)), *model.layers])
    check_model(model)
    go(model, out)


@case(Remedy.UNCACHED)
def counting_task(out):
    class Counting(hub_class("GPT2CausalLM")):
        def call_with_cache(self, token_ids, cache, cache_update_index):
            if cache_update_index > 100:
                return None
            return super().call_with_cache(token_ids, cache, cache_update_index)

    task = Counting(small_hub_task().backbone)
    with refused("InvalidModelError", Remedy.UNCACHED, "Counting"):
        go(task, out)
    go(task, out, options=ExportOptions(generation=False))


@case(Remedy.FOREIGN)
def foreign_tokenizer(out):
    class Lower(hub_class("GPT2Tokenizer")):
        def call(self, inputs, *args, **kwargs):
            return super().call(tf.strings.lower(inputs), *args, **kwargs)

    task = small_hub_task()
    own = task.preprocessor.tokenizer
    task.preprocessor = type(task.preprocessor)(Lower(own.vocabulary, own.merges))
    with refused("InvalidModelError", Remedy.FOREIGN, "Lower"):
        go(task, out)
    go(task, out, tokenizer=text.from_keras_hub(own))
    task.preprocessor = None
    go(task, out)


def hub_class(name):
    import keras_hub

    return getattr(keras_hub.models, name)


def small_hub_task():
    sys.path.append(str(HERE.parents[1] / "benchmarks"))
    return importlib.import_module("keras_hub_tasks").build("GPT2CausalLM")


@case(Remedy.DENSE)
def sparse(out):
    dense_layer = layers.Dense(2)
    x = keras.Input((4,), sparse=True, name="bag")
    with refused("InvalidModelError", Remedy.DENSE, "bag"):
        go(keras.Model(x, dense_layer(x)), out)
    x = keras.Input((4,), name="bag")
    go(keras.Model(x, dense_layer(x)), out)


@case(Remedy.AXES)
def lengths(out):
    left, right = (keras.Input((None, 4), name=name) for name in ("left", "right"))
    model = keras.Model([left, right], ops.matmul(left, ops.transpose(right, (0, 2, 1))))
    probes = [{"left": np.ones((2, 5, 4)), "right": np.ones((2, 3, 4))}]
    same = ExportOptions(dynamic_axes={"left": {1: "length"}, "right": {1: "length"}})
    with refused("InvalidModelError", Remedy.AXES, "right") as found:
        go(model, out, probes=probes, options=same)
    go(model, out, probes=probes, options=typed(found, "ExportOptions("))


@case(Remedy.PROBES)
def probes(out):
    model = calling(lambda x: ops.reshape(ops.reshape(x, (ops.shape(x)[0], -1, 11, 3)), ops.shape(x)), (None, 3))
    with refused("InvalidModelError", Remedy.PROBES, "Calling.call()", "Input to reshape", "length=5"):
        go(model, out)
    go(model, out, probes=[{"x": np.ones((2, 22, 3))}])
    go(model, out, probes=[{"length": 33}])


@case(Remedy.FINITE)
def finite(out):
    x = keras.Input((4,), name="x")
    model = keras.Model(x, ops.sqrt(x - 9.0))
    with refused("InvalidModelError", Remedy.FINITE):
        go(model, out)
    go(model, out, probes=[{"x": 9 + np.abs(np.random.default_rng(0).normal(size=(3, 4)))}])


@case(Remedy.RANDOM)
def random(out):
    generator = tf.random.Generator.from_seed(0)
    for draw in (
        tf.random.normal,
        generator.normal,
        lambda shape: tf.numpy_function(np.random.normal, [0.0], "double"),
    ):
        with refused("NotDeterministicError", Remedy.RANDOM, "layer 'mine'"):
            go(calling(lambda x, draw=draw: x + tf.cast(draw(tf.shape(x)), "float32")), out)
    with refused("NotDeterministicError", Remedy.RANDOM, "Python"):
        go(calling(lambda x: x + np.random.normal()), out)
    x, noise = keras.Input((4,), name="x"), keras.Input((4,), name="noise")
    go(keras.Model([x, noise], x + noise), out)
    go(calling(lambda x: x + keras.random.normal(ops.shape(x))), out)


def example(remedy):
    """The layer that the example of a remedy defines."""
    names = {}
    exec(remedy.example, names)
    kind = next(each for each in names.values() if isinstance(each, type) and issubclass(each, layers.Layer))
    return kind(name="mine")


@case(Remedy.PYTHON)
def python(out):
    def of_numpy(x):
        return np.sign(x) * np.log1p(np.abs(x))

    def logarithm(x):
        return tf.ensure_shape(tf.numpy_function(of_numpy, [x], "float32"), x.shape)

    def tangent(x):
        return tf.ensure_shape(tf.py_function(tf.tanh, [x], "float32"), x.shape)

    for format in ("saved_model", "tflite", "onnx"):
        for function in (logarithm, tangent, of_numpy):
            with refused("InvalidModelError", Remedy.PYTHON, "layer 'mine'"):
                go(around(layers.Lambda(function, output_shape=(4,), name="mine")), out, format)
        go(around(example(Remedy.PYTHON)), out, format)
        assert np.allclose(load(out / "bundle", format)(ONES - 3)["mine"], of_numpy(ONES - 3), atol=1e-6)


@case(Remedy.VALUES)
def values(out):
    model = calling(lambda x: x if ops.sum(x) > 0 else -x)
    with refused("InvalidModelError", Remedy.VALUES, "layer 'mine'", "Python `bool` is not allowed") as found:
        go(model, out)
    assert "InputSpec" not in found[0]
    with refused("InvalidModelError", Remedy.VALUES, "layer 'mine'"):
        go(model, out, options=ExportOptions(inputs=keras.InputSpec(shape=(3, 4))))
    go(around(example(Remedy.VALUES)), out)
    assert (load(out / "bundle")(-ONES)["mine"] == ONES).all()


@case(Remedy.FIXED)
def fixed(out):
    def rows(x):
        return ops.stack([x[row] * row for row in range(x.shape[0])])

    with refused("InvalidModelError", Remedy.FIXED, "layer 'mine'", "Calling.call()", "keras.InputSpec(shape=(1, 4))"):
        go(calling(rows), out)
    go(calling(rows), out, options=ExportOptions(inputs=keras.InputSpec(shape=(3, 4))))
    x, words = keras.Input((None, 4), name="x"), keras.Input((None,), dtype="int32", name="words")
    pair = [Calling(rows)(x), layers.Embedding(9, 4)(words)]
    for inputs in ([x, words], {"x": x, "words": words}):
        model = keras.Model(inputs, pair)
        with refused("InvalidModelError", Remedy.FIXED, "=(1, 5", "=(1, 7", "dtype='int32'") as found:
            go(model, out)
        go(model, out, options=typed(found, "ExportOptions("))
    model = DifferenceOfRows()
    any_batch, one_batch = (dict.fromkeys(("one", "other"), keras.InputSpec(shape=(size, 4))) for size in (None, 3))
    with refused("InvalidModelError", Remedy.INPUTS):
        go(model, out, options=ExportOptions(inputs=any_batch))
    go(model, out, options=ExportOptions(inputs=one_batch))
    x = keras.Input((None, 3), name="x")
    model = keras.Model(x, Calling(lambda x: ops.reshape(x, (x.shape[0] * x.shape[1], 3)))(x))
    with refused("InvalidModelError", Remedy.FIXED):
        go(model, out)
    go(keras.Model(x, example(Remedy.FIXED)(x)), out)


@case(Remedy.COMPLEX)
def complex_output(out):
    def spectrum(x):
        return ops.cast(x, "complex64") * 1j

    with refused("InvalidModelError", Remedy.COMPLEX, "'mine'"):
        go(calling(spectrum), out)
    x = keras.Input((4,), name="x")
    go(keras.Model(x, Calling(lambda x: ops.view_as_real(spectrum(x)))(x)), out)
    go(keras.Model(x, [Calling(lambda x: ops.real(spectrum(x)))(x), Calling(lambda x: ops.imag(spectrum(x)))(x)]), out)


class Rigid(layers.Layer):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, inputs):
        return self.factor * inputs

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class Supple(Rigid):
    def __init__(self, factor, **kwargs):
        layers.Layer.__init__(self, **kwargs)
        self.factor = factor


@contextlib.contextmanager
def mixed():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")


def around(layer):
    x = keras.Input((4,), name="x")
    return keras.Model(x, layer(x))


@case(Remedy.CONFIG)
def config(out):
    with mixed():
        rigid, supple = around(Rigid(2.0)), around(Supple(2.0))
    with refused("InvalidModelError", Remedy.CONFIG, "16-bit layers", "unexpected keyword argument"):
        go(rigid, out)
    go(supple, out)


class Outer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(4, dtype=self.inner_dtype(), name="inner")

    def inner_dtype(self):
        return "mixed_bfloat16"

    def build(self, shape):
        self.inner.build(shape)

    def call(self, inputs):
        return self.inner(inputs)


class OuterThatPasses(Outer):
    def inner_dtype(self):
        return self.dtype_policy


@case(Remedy.DTYPE)
def dtype(out):
    with mixed():
        own, passed = around(Outer()), around(OuterThatPasses())
    with refused("InvalidModelError", Remedy.DTYPE, "inner"):
        go(own, out)
    go(passed, out)


SCALED = """
import keras

class Scaled(keras.layers.Layer):
    def call(self, inputs):
        return 3.0 * inputs
"""


@case(Remedy.MODULE)
def module(out):
    from keras_transformer.export.request import request_of
    from keras_transformer.export.writing.other_backend import export_elsewhere

    def exported(layer):
        model = around(layer)
        request = request_of(model, out / "bundle", ["onnx"], None, None, None, ExportOptions())
        return export_elsewhere(model, request, False)

    Calling.__module__ = "__main__"  # As of a script that defines it.
    with refused("InvalidModelError", Remedy.MODULE, "Calling"):
        exported(Calling(ops.abs))
    (out / "scaled.py").write_text(SCALED)
    sys.path.append(str(out))
    scaled = importlib.import_module("scaled")

    assert set(exported(scaled.Scaled()).artifacts) == {"onnx"}


@case(Remedy.IMPORT)
def imported(out):
    names = {"__name__": "training_script"}
    exec(SCALED, names)
    around(names["Scaled"]()).save(out / "model.keras")
    with refused("InvalidModelError", Remedy.IMPORT, "Could not locate class 'Scaled'; pass") as found:
        model_files.load_model(out / "model.keras")
    assert "register_keras_serializable" not in found[0]
    (out / "my_layers.py").write_text(SCALED)
    command = ["export", str(out / "model.keras"), "--out", str(out / "bundle"), "--formats", "onnx"]
    assert cli.main([*command, "--import", str(out / "my_layers.py")]) == 0


@case(Remedy.LAMBDA)
def lambdas(out):
    around(layers.Lambda(lambda x: 2 * x)).save(out / "model.keras")
    with refused("InvalidModelError", Remedy.LAMBDA, "by default; load it in Python"):
        model_files.load_model(out / "model.keras")
    go(keras.models.load_model(out / "model.keras", safe_mode=False), out)


@case(Remedy.OPERATION)
def operation(out):
    model = calling(lambda x: tf.cast(tf.raw_ops.ApproximateEqual(x=x, y=x * x, tolerance=0.5), tf.float32))
    for format in ("tflite", "onnx"):
        with refused("UnsupportedOpError", Remedy.OPERATION, format, "'mine'", f"('ApproximateEqual', '{format}', f"):
            go(model, out, format)
    go(model, out, formats=["saved_model"])
    for format in ("tflite", "onnx"):
        register_lowering("ApproximateEqual", format, lambda x, y, tolerance: tf.abs(x - y) < tolerance, ["tolerance"])
    go(model, out, ("tflite", "onnx"))


@case(Remedy.TYPE)
def operand_type(out):
    with refused("UnsupportedOpError", Remedy.TYPE, "'mine'", "float16"):
        go(calling(lambda x: ops.sinh(ops.cast(x, "float16"))), out, "tflite")
    go(calling(lambda x: ops.sinh(ops.cast(x, "float32"))), out, "tflite")
    with refused("UnsupportedOpError", Remedy.TYPE, "'mine'", "float64"):
        go(calling(lambda x: tf.matmul(tf.cast(x, "float64"), tf.ones((4, 4), "float64"))), out, "tflite")
    go(calling(lambda x: tf.matmul(x, tf.ones((4, 4)))), out, "tflite")


@case(Remedy.STRINGS)
def strings(out):
    def model(layer):
        x = keras.Input((), dtype="string", name="word")
        return keras.Model(x, layers.Embedding(9, 2)(layers.StringLookup(vocabulary=["a", "b"])(layer(x))))

    class Lower(layers.Layer):
        def call(self, inputs):
            return tf.strings.lower(inputs)

        def compute_output_spec(self, inputs):
            return keras.KerasTensor(inputs.shape, "string")

    for format in ("tflite", "onnx"):
        with refused("UnsupportedOpError", Remedy.STRINGS, format, "lower"):
            go(model(Lower()), out, format)
    go(model(Lower()), out, formats=["saved_model"])
    go(model(lambda x: x), out, ("tflite", "onnx"))


@case(Remedy.EFFECT)
def effect(out):
    def printed(x):
        tf.print("a batch")
        return ops.abs(x)

    model = calling(printed)
    with refused("UnsupportedOpError", Remedy.EFFECT, "saved_model", "PrintV2", "'mine'"):
        go(model, out, "saved_model")
    with refused("UnsupportedOpError", Remedy.EFFECT, "tflite", "PrintV2", "'mine'"):
        go(model, out, "tflite")
    go(calling(ops.abs), out, ("saved_model", "tflite"))
    (out / "scale.txt").write_text("2.0")
    model = calling(lambda x: x * tf.strings.to_number(tf.io.read_file(str(out / "scale.txt"))))
    for format in ("saved_model", "tflite", "onnx"):
        with refused("UnsupportedOpError", Remedy.EFFECT, format, "ReadFile", "'mine'"):
            go(model, out, format)


@case(Remedy.FORMAT)
def converter(out):
    def fails(a, b, x):
        raise ValueError("No shape is known.")

    register_lowering("Betainc", "onnx", fails)
    model = calling(lambda x: tf.math.betainc(ops.abs(x) + 1, ops.abs(x) + 1, ops.sigmoid(x)))
    with refused("ConversionError", Remedy.FORMAT, "onnx", "No shape is known"):
        go(model, out)
    go(model, out, formats=["saved_model"])


@case(Remedy.STANDARD)
def standard(out):
    import onnx

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.openvino.convert import _typed

    model = around(layers.Dense(4, activation=lambda x: keras.activations.gelu(x, approximate=True)))
    go(model, out)
    with refused("UnsupportedOpError", Remedy.STANDARD, "openvino", "FastGelu"):
        message = "No conversion rule found for operations: com.microsoft.FastGelu"
        raise _typed(RuntimeError(message), out / "bundle" / "model.onnx", ExportSpec({}))
    go(model, out, options=ExportOptions(onnx=OnnxOptions(contrib_ops=False)))
    assert {each.domain for each in onnx.load(out / "bundle" / "model.onnx").graph.node} <= {"", "ai.onnx"}


@case(Remedy.OPSET)
def opset(out):
    with refused("ExportError", Remedy.OPSET):
        OnnxOptions(opset=20, optimize=False)
    go(dense(), out, options=ExportOptions(onnx=OnnxOptions(optimize=False)))
    go(dense(), out, options=ExportOptions(onnx=OnnxOptions(opset=20, optimize=True)))


@case(Remedy.SIZES)
def sizes(out):
    x = keras.Input((None, 4), name="x")
    model = keras.Model(x, layers.Dense(2)(x))
    with refused("TargetError", Remedy.SIZES, "'length'") as found:
        go(model, out, "tflite", options=ExportOptions(target="xnnpack"))
    go(model, out, "tflite", options=typed(found, "ExportOptions("))


@case(Remedy.FORMATS)
def target_format(out):
    options = ExportOptions(target="xnnpack")
    with refused("TargetError", Remedy.FORMATS, "not onnx"):
        go(dense(), out, "onnx", options=options)
    export(dense(), out / "bundle", progress=False, options=options)


@case(Remedy.SIGNATURES)
def target_signatures(out):
    model = around(layers.Dense(2))
    with refused("ExportError", Remedy.SIGNATURES):
        go(model, out, "tflite", options=ExportOptions(target="xnnpack", signatures={"again": model.call}))
    go(model, out, "tflite", options=ExportOptions(target="xnnpack"))


@case(Remedy.GENERATION)
def generation(out):
    model, static = language_model(), {"batch": 1, "length": 8}
    with refused("ExportError", Remedy.GENERATION):
        go(model, out, "tflite", options=ExportOptions(static=static))
    go(model, out, "tflite", options=ExportOptions(static=static, generation=False))


@case(Remedy.OPTIONS)
def options(out):
    with refused("ExportError", Remedy.OPTIONS, "tolerance") as found:
        go(dense(), out, tolerance=0.001, options=ExportOptions())
    go(dense(), out, options=typed(found, "ExportOptions("))


@case(Remedy.DIRECTORY)
def directory(out):
    (out / "bundle").mkdir()
    (out / "bundle" / "thesis.txt").write_text("years")
    with refused("InvalidBundleError", Remedy.DIRECTORY, "thesis.txt"):
        go(dense(), out)
    (out / "new").mkdir()
    go(dense(), out / "new")
    assert (out / "bundle" / "thesis.txt").read_text() == "years"


@case(Remedy.PROCESS)
def process(out):
    import multiprocessing

    go(dense(), out, "saved_model")
    load(out / "bundle", "saved_model")
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            load(out / "bundle", "saved_model")
        except errors.ExportError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.wait()
    with refused("ExportError", Remedy.PROCESS):
        raise errors.ExportError(os.read(reading, 9999).decode())
    started = multiprocessing.get_context("spawn").Process(target=load, args=(out / "bundle", "saved_model"))
    started.start()
    started.join()
    assert started.exitcode == 0


@case(Remedy.QUANTIZE)
def quantize(out):
    model, options = around(layers.Dense(1024)), ExportOptions(evaluation=Evaluation([{"x": normal(2, 4)}]))
    with refused("QuantizationError", Remedy.QUANTIZE):
        go(model, out, options=options)
    go(model, out, quantize="fp16", options=options)


@case(Remedy.CALIBRATION)
def calibration(out):
    model = around(layers.Dense(512))
    with refused("QuantizationError", Remedy.CALIBRATION):
        go(model, out, quantize="int8_static")
    with refused("QuantizationError", Remedy.CALIBRATION, "are empty"):
        go(model, out, quantize=Int8Static([]))
    go(model, out, quantize=Int8Static([{"x": np.random.default_rng(0).normal(size=(64, 4)).astype("float32")}]))


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@case(Remedy.NOTHING)
def nothing(out):
    model = around(layers.Dense(4))
    with refused("QuantizationError", Remedy.NOTHING, "no weight was quantized"):
        go(model, out, quantize="int8")
    go(model, out, quantize=FullInt8(normal(64, 4)))


@case(Remedy.ENDS)
def ends(out):
    model, data = around(layers.Dense(4)), normal(64, 4)
    with refused("QuantizationError", Remedy.ENDS):
        go(model, out, quantize=FullInt8(data, input_type="int8"))
    go(model, out, quantize=FullInt8(data))
    go(model, out, "tflite", quantize=FullInt8(data, input_type="int8"))


@case(Remedy.PRODUCTS)
def products(out):
    model, data = calling(layers.Conv2D(16, 3), (8, 8, 16)), normal(64, 8, 8, 16)
    for format in ("tflite", "onnx"):
        with refused("QuantizationError", Remedy.PRODUCTS):
            go(model, out, format, quantize=Int8Static(data))
        go(model, out, format, quantize=FullInt8(data))


@case(Remedy.STEPS)
def steps(out):
    model, tokens = language_model(), np.arange(8, dtype="int32")[None]
    with refused("QuantizationError", Remedy.STEPS):
        go(model, out, quantize=Int8Static([{"token_ids": tokens}]))
    go(model, out, quantize="int8")


@case(Remedy.BLOCKS)
def blocks(out):
    model = calling(layers.Dense(64), (64,))
    with refused("QuantizationError", Remedy.BLOCKS, "16"):
        go(model, out, "tflite", quantize=WeightInt4(block_size=16))
    go(model, out, "tflite", quantize=WeightInt4(block_size=32))


@case(Remedy.CONTRIB)
def contrib(out):
    model = around(layers.Dense(512))
    calibration = [{"x": np.random.default_rng(0).normal(size=(64, 4)).astype("float32")}]
    mode = Int8Static(calibration, activation_bits=16)
    with refused("QuantizationError", Remedy.CONTRIB):
        go(model, out, quantize=mode, options=ExportOptions(onnx=OnnxOptions(contrib_ops=False)))
    go(model, out, quantize=mode, options=ExportOptions(onnx=OnnxOptions(contrib_ops=True)))


@case(Remedy.WEIGHTS)
def weights(out):
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64, name="first"), layers.Dense(64, name="last")])
    with refused("QuantizationError", Remedy.WEIGHTS, "head/*") as found:
        go(model, out, quantize=Int8(keep_float=("head/*",)))
    kept = re.search(r"keep_float=(\(.*?,\))", found[0])[1]
    go(model, out, quantize=Int8(keep_float=eval(kept)))


@case(Remedy.TOKENS)
def tokens(out):
    model = language_model()
    with refused("QuantizationError", Remedy.TOKENS):
        go(model, out, quantize="fp16", options=ExportOptions(evaluation=Evaluation(text=["the cat sat"])))
    ids = np.random.default_rng(0).integers(0, 96, 64)
    go(model, out, quantize="fp16", options=ExportOptions(evaluation=Evaluation(text=[ids])))


def gguf_model(out, kind, width=64):
    import gguf_worker

    gguf_worker.float_file(out / "float.gguf", width)
    model = checkpoints.from_gguf(out / "float.gguf", verbose=0)
    checkpoints.to_gguf(model, out / "model.gguf", quantize=kind, verbose=0)
    return checkpoints.from_gguf(out / "model.gguf", verbose=0)


@case(Remedy.SOURCE)
def source(out):
    model = gguf_model(out, "Q8_0")
    del model.checkpoint
    with refused("QuantizationError", Remedy.SOURCE, "Gguf(file)"):
        go(model, out, quantize="gguf")
    go(model, out, quantize=Gguf(out / "model.gguf"))
    model = calling(layers.Dense(64, name="dense"), (64,))
    quantization.quantize_weights(model, {"*": quantization.WeightScheme(8, None)}).save(out / "weights.safetensors")
    del model.quantized_weights
    with refused("QuantizationError", Remedy.SOURCE, "Learned(file)"):
        go(model, out, quantize="learned")
    go(model, out, quantize=Learned(out / "weights.safetensors"))


@case(Remedy.HALVES)
def halves(out):
    model = gguf_model(out, "Q6_K", width=256)
    with refused("QuantizationError", Remedy.HALVES, "tflite", "Q6_K"):
        go(model, out, "tflite", quantize="gguf")
    go(model, out, formats=["onnx"], quantize="gguf")


@case(Remedy.LEARNED)
def learned_ranges(out):
    aware = training.quantization_aware(dense(), "full_int8")
    aware(ONES, training=True)
    with refused("QuantizationError", Remedy.LEARNED, "FullInt8(data)"):
        go(aware, out, quantize="int8")
    go(aware, out, "tflite", quantize=FullInt8(np.eye(4)))


@case(Remedy.TRAINED)
def trained_ranges(out):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    aware = training.quantization_aware(model, "full_int8")
    with refused("QuantizationError", Remedy.TRAINED, "aware.fit(x, y)"):
        go(aware, out, "tflite", quantize=FullInt8(np.eye(4)))
    aware.compile("sgd", "mse")
    aware.fit(np.eye(4), np.ones((4, 3)), verbose=0)
    go(aware, out, "tflite", quantize=FullInt8(np.eye(4)))


@case(Remedy.CHANGED)
def changed(out):
    model = gguf_model(out, "Q8_0")
    weight = next(each for each in model.variables if each.path.endswith("value/kernel"))
    values = np.array(weight)
    values.flat[5] *= 1.001
    weight.assign(values)
    with refused("QuantizationError", Remedy.CHANGED, "value/kernel") as found:
        go(model, out, quantize="gguf")
    go(model, out, quantize=typed(found, "Gguf("))


@case("decode with keras.ops.ctc_decode")
def beams(out):
    def decoded(strategy):
        def call(x):
            lengths = ops.full((ops.shape(x)[0],), 6, dtype="int32")
            return ops.cast(ops.ctc_decode(x, lengths, strategy=strategy)[0][0], "float32")

        return calling(call, (6, 5))

    for format in ("tflite", "onnx"):
        with refused("UnsupportedOpError", "decode with keras.ops.ctc_decode", format, "'mine'"):
            go(decoded("beam_search"), out, format)
        go(decoded("greedy"), out, format)
    go(calling(lambda x: ops.log_softmax(x), (6, 5)), out, ("tflite", "onnx"))


@case(Remedy.TOKENIZER)
def tokenizer(out):
    words = text.BytePair.train(["the cat sat on the mat"], 270)
    size = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=32)
    backbone = models.Encoder(size, words.vocabulary_size, max_sequence_length=16)
    model, static = tasks.SequenceClassifier(backbone, num_classes=3), {"batch": 1, "length": 16}
    go(model, out, "tflite", options=ExportOptions(static=static))
    with refused("InvalidBundleError", Remedy.TOKENIZER):
        write_text_tflite(out / "bundle", out / "text.tflite", "serve_1x16")
    go(model, out, "tflite", tokenizer=words, options=ExportOptions(static=static))
    write_text_tflite(out / "bundle", out / "text.tflite", "serve_1x16")


def trained(model, out, **options):
    export_training(model, out / "training", (ONES, np.ones((2, 3), "float32")), progress=False, **options)


@case(Remedy.COMPILE)
def compiled(out):
    model = dense()
    with refused("InvalidModelError", Remedy.COMPILE, "has no loss", "pass loss="):
        trained(model, out)
    trained(model, out, loss="mse", optimizer="sgd")
    model.compile("sgd", "mse")
    trained(model, out)


@case(Remedy.TRAINABLE)
def trainable(out):
    model = dense()
    model.compile("sgd", "mse")
    model.trainable = False
    with refused("InvalidModelError", Remedy.TRAINABLE):
        trained(model, out)
    model.trainable = True
    trained(model, out)


@case(Remedy.FREEZE)
def frozen(out):
    x = keras.Input((4,), name="x")
    aside = layers.Dense(3, name="aside")
    model = keras.Model(x, layers.Dense(3)(x) + ops.stop_gradient(aside(x)))
    model.compile("sgd", "mse")
    with refused("InvalidModelError", Remedy.FREEZE, "aside/"):
        trained(model, out)
    aside.trainable = False
    trained(model, out)


@case(Remedy.LABELS)
def labels(out):
    def model(name):
        x = keras.Input((4,), name=name)
        found = keras.Model(x, layers.Dense(3)(x))
        found.compile("sgd", "mse")
        return found

    with refused("InvalidModelError", Remedy.LABELS, "labels"):
        trained(model("labels"), out)
    trained(model("x"), out)


# Remedies in the table of operations.


@case("use keras.ops.eigh of a symmetric matrix")
def eigenvalues(out):
    def symmetric(x):
        return x + ops.swapaxes(x, 1, 2)

    for format in ("tflite", "onnx"):
        with refused("UnsupportedOpError", "use keras.ops.eigh of a symmetric matrix", format, "Eig", "'mine'"):
            go(calling(lambda x: ops.real(ops.eig(symmetric(x))[0]), (3, 3)), out, format)
        go(calling(lambda x: ops.eigh(symmetric(x))[0], (3, 3)), out, format)
        go(calling(lambda x: ops.svd(x, compute_uv=False), (3, 3)), out, format)


@case("write the layer with keras.ops, or leave")
def program(out):
    import jax.numpy as jnp

    kernel = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    layer = layers.JaxLayer(lambda params, inputs: jnp.tanh(inputs @ params["kernel"]), params={"kernel": kernel})
    for format in ("saved_model", "onnx"):
        with refused(
            "UnsupportedOpError", "write the layer with keras.ops, or leave", format, "XlaCallModule", layer.name
        ):
            go(around(layer), out, format)
    go(around(layer), out, formats=["tflite"])
    go(calling(lambda x: ops.tanh(x @ kernel)), out, ("saved_model", "onnx"))


@case("leave this format out, or cast the numbers")
def bits(out):
    model = calling(lambda x: ops.cast(ops.view(x, "int8"), "int32"))
    with refused("UnsupportedOpError", "leave this format out, or cast the numbers", "onnx", "Bitcast"):
        go(model, out)
    go(model, out, "saved_model")
    go(calling(lambda x: ops.cast(x, "int8")), out)


@case("a list of a loop")
def lists(out):
    def looped(x):
        _, result = ops.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))
        return result

    model = calling(lambda x: ops.map(lambda row: 2.0 * row, x), (None, 4))
    with refused("UnsupportedOpError", "a list of a loop", "tflite", "'mine'"):
        go(model, out, "tflite")
    go(model, out, "tflite", options=ExportOptions(inputs=keras.InputSpec(shape=(2, 5, 4))))
    go(model, out, formats=["onnx"])
    go(calling(looped, (None, 4)), out, "tflite")


def main(out, *names):
    folders = {name: pathlib.Path(out, name.replace(" ", "_")) for name in names or CASES}
    for each in folders.values():
        each.mkdir()
    run_cases(pathlib.Path(out), {name: lambda name=name, out=each: CASES[name](out) for name, each in folders.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
