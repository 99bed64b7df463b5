"""What a user does about a refusal: `Remedy`, whose entries docs/errors.md lists and `keras-transformer explain` prints."""

from __future__ import annotations

import enum


class Remedy(enum.Enum):
    """What ends a refusal in success; each has an entry in docs/errors.md.

    Args:
        title: of the entry: letters, digits and spaces, so that every reader of the page makes the same anchor of it.
        meaning: what the refusal says.
        text: what to do. The error fills in the names in braces.
        example: lines of Python that show it, or "".

    Example:

    >>> Remedy.OPSET.anchor, Remedy.OPSET.text
    ('opset-without-the-optimizer', 'leave `opset` out, or pass optimize=True')
    """

    def __init__(self, title: str, meaning: str, text: str, example: str = "") -> None:
        self.title, self.meaning, self.text, self.example = title, meaning, text, example

    @property
    def anchor(self) -> str:
        """The anchor of the entry."""
        return self.title.lower().replace(" ", "-")

    # The model and its inputs.
    PATH = (
        "A path in place of a model",
        "`export` takes a model, and was given the path of a file or a folder.",
        "load it first, with keras_transformer.load_model for a file, with"
        " keras_transformer.checkpoints.from_huggingface for the folder of a checkpoint, or with keras.layers.TFSMLayer for"
        " that of a SavedModel",
    )
    INPUTS = (
        "Inputs are not known",
        "A subclassed model or a layer does not say what it takes before it was called; or it cannot be called on the shapes"
        " of its first call, since some arguments are missing.",
        "call it on data first, or pass ExportOptions(inputs=...): a keras.InputSpec or keras.Input for each input, in the"
        " structure that `call` takes, or in a dict by the names of its arguments",
    )
    ARGUMENTS = (
        "A SavedModel of several arguments",
        "The signature of a `keras.layers.TFSMLayer` takes more than one argument, and a layer is called on one.",
        "call it in a model, on a keras.Input for each: layer(left, right=right)",
    )
    FUNCTIONAL = (
        "Not a functional model",
        "An engine, a target or training on the device needs a functional model; `export` makes one of any other by itself.",
        "build it with keras.Model(inputs, outputs) or keras.Sequential with an Input",
    )
    UNCACHED = (
        "A task of KerasHub without a cache for texts",
        "The task generates from images or sounds, or its step with a cache computes in Python what depends on the texts.",
        "pass ExportOptions(generation=False) for its forward pass alone",
    )
    FOREIGN = (
        "A tokenizer of KerasHub that is not known",
        "Its ids are not those of a byte-pair, WordPiece or SentencePiece tokenizer of this package.",
        "pass a tokenizer of keras_transformer.text as tokenizer=..., or set the preprocessor of the task to None, for a"
        " bundle that takes token ids",
    )
    DENSE = (
        "Sparse and ragged inputs",
        "An input was made with `sparse=True` or `ragged=True`. The files take arrays.",
        "make it dense, keras.Input(shape), and give the model dense arrays",
    )
    AXES = (
        "Two lengths on one axis",
        "Two inputs have one name for an axis, so that their sizes must agree, and the arrays of a probe have others.",
        "give it an axis of its own: ExportOptions(dynamic_axes={{{name!r}: {{{index}: '{name}_{axis}'}}}})",
    )
    PROBES = (
        "The model fails on a probe",
        "The model is run on inputs of several sizes, and does not take one of them. Beside `probes` of your own, those that"
        " it does not take are left out.",
        "pass `probes`, sizes or arrays that it accepts, such as some of your data: probes=[{{{arrays}}}]",
    )
    FINITE = (
        "An output is NaN on every probe",
        "No file can be compared with outputs that are never numbers. Normal random numbers may be outside of what the model"
        " takes; or its weights are NaN, after a training that diverged.",
        "pass `probes`, arrays on which it is finite, or check its weights",
    )
    COMPLEX = (
        "A complex output",
        "An output is complex. The formats have arrays of real numbers.",
        "return both parts: keras.ops.view_as_real(x), or keras.ops.real(x) and keras.ops.imag(x)",
    )
    RANDOM = (
        "Random numbers that are not of keras random",
        "Two calls of the model give different outputs, since it draws random numbers in inference, or changes a variable.",
        "make it an input of the model, such as `noise = keras.Input(shape)` in place of random numbers; normal and uniform"
        " ones of keras.random become inputs by themselves. Take a state that the model changes as an input too, and return"
        " the next one",
    )
    PYTHON = (
        "Functions of Python and numpy",
        "A layer computes with numpy, or with a function of Python, as by `tf.numpy_function` and `tf.py_function`. A file"
        " contains neither.",
        "write it with keras.ops, such as keras.ops.log1p(x) in place of numpy.log1p(x)",
        """import keras
from keras import ops


# In place of keras.layers.Lambda(lambda x: tf.numpy_function(lambda x: np.sign(x) * np.log1p(np.abs(x)), [x], "float32"))
class SignedLogarithm(keras.layers.Layer):
    def call(self, x):
        return ops.sign(x) * ops.log1p(ops.abs(x))
""",
    )
    VALUES = (
        "A value that is not known",
        "A file contains a graph, in which a tensor has no value. The code of a layer uses one as a Python bool or number,"
        " as in `if keras.ops.sum(x) > 0:`.",
        "compute with keras.ops, choose with keras.ops.where or keras.ops.cond, and repeat with keras.ops.while_loop",
        """import keras
from keras import ops


# In place of: x if ops.sum(x) > 0 else -x
class Upward(keras.layers.Layer):
    def call(self, x):
        return ops.where(ops.sum(x) > 0, x, -x)
""",
    )
    FIXED = (
        "A size that is not known",
        "The code of a layer computes with the size of an axis as with a Python number, and that size is another one in each"
        " call. With fixed sizes, the model can be exported.",
        "take sizes from keras.ops.shape, or fix them: ExportOptions(inputs={inputs})",
        """import keras
from keras import ops


# In place of: ops.reshape(x, (x.shape[0] * x.shape[1], 3))
class Rows(keras.layers.Layer):
    def call(self, x):
        return ops.reshape(x, (ops.shape(x)[0] * ops.shape(x)[1], 3))
""",
    )
    CONFIG = (
        "The model cannot be rebuilt",
        "A model with adapters or layers in 16 bits is rebuilt from its config, which a class of it does not take.",
        "a class of your own must take the arguments that its get_config returns, such as those of **kwargs",
    )
    DTYPE = (
        "A layer in 16 bits by its own code",
        "A layer makes another one without its own dtype, which stays in 16 bits where the model is made float32.",
        "let the layer that makes it take `dtype`, and pass it on",
    )
    MODULE = (
        "A class of the running script",
        "A model on JAX or PyTorch is exported by a second process on TensorFlow, which cannot import the script.",
        "put it in a module, so that the process that exports with Keras on TensorFlow can import it",
    )
    IMPORT = (
        "A class that a file does not contain",
        "A `.keras` file names the classes of its layers; the command line does not know one of them.",
        "pass the Python file that defines it: --import FILE.py",
    )
    LAMBDA = (
        "A file with Python in it",
        "A `.keras` file contains a Python lambda, which the command line does not run.",
        "load it in Python, keras.models.load_model(path, safe_mode=False), and call export(model, ...)",
    )

    # What a format has.
    OPERATION = (
        "An operation that a format lacks",
        "The format has no operator for an operation of TensorFlow, and the table of operations no function for it.",
        "write it as a function of others, register_lowering({op!r}, {format!r}, function), or leave the format out, such as"
        " formats=['saved_model']",
    )
    TYPE = (
        "An operation of another type",
        "LiteRT has the operation, but not of this type.",
        "cast to float32 or int32 before it, with keras.ops.cast",
    )
    STRINGS = (
        "Strings that no step makes",
        "A layer computes with strings in a way that neither the file nor a stage in front of it can do.",
        "compute it before the model, or with keras.layers.StringLookup, TextVectorization, Hashing or HashedCrossing"
        " (without callables, dense); a SavedModel contains it as it is, formats=['saved_model']",
    )
    EFFECT = (
        "An operation that does more than compute",
        "A file must not run Python, print, or read files; such an operation is in the graph.",
        "take it out of the model",
    )
    FORMAT = (
        "A converter fails",
        "The converter of a format fails on the model, though each operation may be one that it has.",
        "leave the format out, such as formats=['saved_model']",
    )
    STANDARD = (
        "An operator of ONNX Runtime alone",
        "OpenVINO reads the ONNX files, one of which has a contrib operator of ONNX Runtime.",
        "pass OnnxOptions(contrib_ops=False), which writes operators of the standard only",
    )
    OPSET = (
        "Opset without the optimizer",
        "`OnnxOptions` names an opset, which the optimizer of the files writes, and turns it off.",
        "leave `opset` out, or pass optimize=True",
    )

    # Targets and arguments.
    SIZES = (
        "A target without sizes",
        "An accelerator runs files of fixed shapes.",
        "pass options=ExportOptions(static={{{example}}}, target={target!r})",
    )
    FORMATS = (
        "A target of another format",
        "A target is one file, of the format that the accelerator takes.",
        "leave `formats` out",
    )
    SIGNATURES = (
        "Signatures for a target",
        "A file for an accelerator has one signature.",
        "pass no signatures in ExportOptions",
    )
    GENERATION = (
        "Shapes of a language model",
        "A language model is exported as the steps of its generation, whose shapes `generation` sets.",
        "pass ExportOptions(generation=False) too",
    )
    OPTIONS = (
        "Options beside options",
        "Arguments of `ExportOptions` were passed to `export`, together with `options`.",
        "pass options=ExportOptions({options})",
    )
    DIRECTORY = (
        "A directory of other files",
        "`export` replaces a bundle, and deletes nothing else.",
        "choose a new directory, or an empty one",
    )
    PROCESS = (
        "A process that was forked",
        "TensorFlow does not run in a process that was forked from one that used it.",
        "start processes with the method 'spawn' or 'forkserver', or load SavedModels in the new process alone",
    )

    TOKENIZER = (
        "A bundle without a tokenizer",
        "A file that takes text needs the tokenizer of the bundle.",
        "pass one to export: export(model, directory, tokenizer=tokenizer)",
    )

    # Training on the device.
    COMPILE = (
        "A model that was not compiled",
        "`export_training` takes the loss and the optimizer of the model, which has none.",
        "compile it, or pass {what}=",
    )
    TRAINABLE = (
        "A model without trainable weights",
        "All layers are frozen, so that nothing would be trained on the device.",
        "set trainable = True of its head, say",
    )
    FREEZE = (
        "A weight without a gradient",
        "The loss does not depend on a weight that is trainable.",
        "freeze its layer: layer.trainable = False",
    )
    LABELS = (
        "An input with the name of the labels",
        "The signature `train` has an input of this name for the labels of a batch.",
        "give it another name than {name!r}",
    )

    # Quantization.
    QUANTIZE = (
        "An evaluation of float files",
        "`evaluation` limits what quantization may cost, and nothing is quantized.",
        "pass `quantize` too",
    )
    CALIBRATION = (
        "Static quantization without data",
        "`int8_static` and `full_int8` find the ranges of activations in examples of your data.",
        "pass {name}(calibration): some hundred examples of real inputs, such as x_train[:200]",
    )
    STEPS = (
        "Static quantization of a language model",
        "`int8_static` and `full_int8` calibrate one forward pass; a language model has several signatures.",
        "for language models take quantize='int8'",
    )
    NOTHING = (
        "A quantization that changes nothing",
        "The weights of the model are small: operators that dequantize them would cost more than they save.",
        "take FullInt8(calibration), which quantizes weights of any size, or leave quantize",
    )
    ENDS = (
        "Inputs or outputs of integers",
        "TFLite files alone have scales of inputs and outputs; those of ONNX files would be lost.",
        "leave input_type and output_type, or write formats=['tflite'] alone",
    )
    PRODUCTS = (
        "Static quantization of a model without products",
        "`int8_static` quantizes the products of Dense layers, and the model has none.",
        "take FullInt8(calibration), which quantizes convolutions and all other operators too",
    )
    BLOCKS = (
        "Blocks without a kernel",
        "LiteRT has no kernel for so few weights with one scale.",
        "take WeightInt4(block_size=...) of 32, 64, 128 or 256",
    )
    CONTRIB = (
        "Activations of 16 bits without contrib operators",
        "Standard ONNX operators quantize to 8 bits before opset 21, and those of `int8_static` in any.",
        "pass OnnxOptions(contrib_ops=True), the default",
    )
    WEIGHTS = (
        "A pattern that matches no weight",
        "`keep_float` has a pattern that no weight of the model matches.",
        "name some of the weights: keep_float=({weight!r},)",
    )
    TOKENS = (
        "A text without a tokenizer",
        "`Evaluation(text=...)` of strings needs a tokenizer.",
        "pass token ids, or give the model a tokenizer",
    )
    SOURCE = (
        "Kept integers without a file",
        '`"gguf"` and `"learned"` keep integers that the model does not bring along.',
        "pass {name}(file)",
    )
    HALVES = (
        "Blocks whose scales are too fine for LiteRT",
        "The kernels of LiteRT have scales in half precision, which the blocks of the GGUF file exceed.",
        "formats=['onnx'] keeps them",
    )
    CHANGED = (
        "Weights that are not those of the file",
        '`"gguf"` and `"learned"` keep integers of weights as they are; a weight of the model has changed since.',
        "leave it in float: quantize={name}(keep_float=({weight!r},))",
    )
    LEARNED = (
        "A model that was trained for other files",
        '`quantization_aware(model, "full_int8")` trains the integers of `FullInt8`, with activations of 8 bits.',
        "pass quantize=FullInt8(data)",
    )
    TRAINED = (
        "Ranges that were not learned",
        '`quantization_aware(model, "full_int8")` learns the ranges of activations in `fit`; without, there are none.',
        "train it: aware.fit(x, y)",
    )
