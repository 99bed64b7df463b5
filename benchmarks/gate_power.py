"""The power of the gate: faults that are planted into written files, and how many of them an export refuses.

    python benchmarks/gate_power.py [--models decoder_8 ...] [--formats onnx ...] [--json FILE]

Each fault changes what is written, after the references and their rounding were measured on the sound model: a weight, an
operation, or what a signature does with its inputs. A fault is caught if the comparison of the weights or that of the
outputs refuses the file. `outputs alone` counts those that the outputs refuse without the comparison of the weights. Sound
files of the same models, with fresh, random and extreme weights, must be accepted.
"""

import contextlib
import dataclasses
import pathlib
import tempfile
import time

import keras
import measure
import numpy as np

from keras_transformer import models, positions, tasks
from keras_transformer.export import ExportError, api
from keras_transformer.export.bundle import writing
from keras_transformer.export.formats import FORMATS
from keras_transformer.export.spec.traced import TracedModule
from keras_transformer.export.verification.rounding import measure_rounding
from keras_transformer.export.verification.verify import verify_format
from keras_transformer.export.verification.weights import check_weights

VOCABULARY = 300


def size(num_layers, width=32):
    return models.Size(num_layers, width, 4, 2 * width)


def _decoder(num_layers, **words):
    return tasks.LanguageModel(models.Decoder(size(num_layers), VOCABULARY, **words))


MODELS = {
    "spans_2": lambda: tasks.SpanAnswerer(
        models.Encoder(size(2), VOCABULARY, max_sequence_length=128, activation="gelu")
    ),
    "detector_4": lambda: tasks.ReplacedTokenDetector(models.Encoder(size(4), VOCABULARY, position="sinusoidal")),
    "vit_6": lambda: tasks.ImageClassifier(models.ViT(size(6), patch_size=4, image_size=16), num_classes=10),
    "transformer_3": lambda: tasks.LanguageModel(models.Transformer(size(3), VOCABULARY)),
    "decoder_8": lambda: _decoder(8, max_sequence_length=128),
    "rotary_16": lambda: _decoder(16, position=positions.Rotary(10000.0), norm="rms_norm", feedforward="gated"),
    "local_32": lambda: _decoder(32, position="rotary", attention="local", norm="rms_norm"),
    "encoder_64": lambda: models.Encoder(size(64), VOCABULARY, max_sequence_length=128),
}


def randomized(model, scale=0.05):
    """A model whose weights are all away from their initial values, norms and biases too."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        if "float" in str(weight.dtype):
            weight.assign(np.asarray(weight) + random.normal(scale=scale, size=weight.shape))
    return model


def fresh(model):
    return model


def extreme(model):
    """A model with large embeddings and small norms, as in trained models with outliers."""
    for weight in randomized(model).weights:
        factor = 30.0 if "embedding" in weight.path else 0.05 if "norm" in weight.path else 1.5
        if "float" in str(weight.dtype):
            weight.assign(np.asarray(weight) * factor)
    return model


# Faults of weights: functions of a copy of the values.


def scaled(value):
    return value * np.float32(1.001)


def one_element(value):
    value.reshape(-1)[value.size // 3] *= -1
    return value


def one_row(value):
    value[len(value) // 2] = 0
    return value


def rows_exchanged(value):
    value[[0, -1]] = value[[-1, 0]]
    return value


def heads_swapped(value):
    return value.reshape(*value.shape[:-1], 2, -1)[..., ::-1, :].reshape(value.shape)


WEIGHT_FAULTS = (scaled, one_element, one_row, rows_exchanged, heads_swapped)
KINDS = (
    *("query/kernel", "key/kernel", "value/kernel", "attention_output/kernel", "hidden/kernel", "output/kernel"),
    *("query/bias", "hidden/bias", "gamma", "beta", "scale", "embeddings", "position_embedding", "head"),
)


def weight_faults(model):
    """Pairs of a label and a context that plants the fault, for one weight of each kind."""
    for kind in KINDS:
        weight = next((each for each in model.weights if kind in each.path), None)
        for change in WEIGHT_FAULTS if weight is not None else ():
            even = weight.shape[-1] % 2 == 0
            if change is not heads_swapped or even:
                yield f"{kind}: {change.__name__}", _assigned(weight, change)


def _assigned(weight, change):
    @contextlib.contextmanager
    def plant(spec):
        value = np.asarray(weight)
        weight.assign(change(value.copy()))
        try:
            yield spec
        finally:
            weight.assign(value)

    return plant


# Faults of operations: an attribute of the first layer that has it.
ATTRIBUTES = {
    "epsilon": lambda value: value * 1.5,
    "max_wavelength": lambda value: value * 1.001,
    "window": lambda value: value + 1,
    "activation": lambda value: lambda x: keras.activations.gelu(x, approximate="tanh" not in str(value)),
}


def attribute_faults(model):
    for name, change in ATTRIBUTES.items():
        found = [each for each in model._flatten_layers() if getattr(each, name, None) and "linear" not in str(each)]
        found = [each for each in found if name != "activation" or each.path.endswith("hidden")]
        if found:
            yield f"{name} of one layer", _attribute(found[0], name, change)


def _attribute(layer, name, change):
    @contextlib.contextmanager
    def plant(spec):
        value = getattr(layer, name)
        object.__setattr__(layer, name, change(value))
        try:
            yield spec
        finally:
            object.__setattr__(layer, name, value)

    return plant


# Faults of signatures: functions of the inputs and of what computes the outputs.


def mask_dropped(tensors, function):
    return function(_each(tensors, "mask", keras.ops.ones_like))


def mask_inverted(tensors, function):
    return function(_each(tensors, "mask", keras.ops.logical_not))


def mask_shifted(tensors, function):
    return function(_each(tensors, "mask", lambda x: keras.ops.roll(x, 1, axis=-1)))


def lengths_off_by_one(tensors, function):
    return function(_each(tensors, "lengths", lambda x: keras.ops.maximum(x - 1, 1)))


def slots_shifted(tensors, function):
    return function(_each(tensors, "cache_index", lambda x: keras.ops.maximum(x - 1, 0)))


def late_slots_shifted(tensors, function):
    return function(_each(tensors, "cache_index", lambda x: x - keras.ops.cast(x > 10, x.dtype)))


def last_word_replaced(tensors, function):
    return function(_each(tensors, "token_ids", lambda x: keras.ops.minimum(x, VOCABULARY - 2)))


def batch_rows_exchanged(tensors, function):
    return {name: value[::-1] if len(value.shape) else value for name, value in function(tensors).items()}


def changed_beyond_64(tensors, function):
    return _first_output(function(tensors), lambda x: _beyond(x, 64, 1e-4))


def changed_by_a_thousandth(tensors, function):
    return _first_output(function(tensors), lambda x: x * 1.001)


def half_precision(tensors, function):
    return _first_output(function(tensors), lambda x: keras.ops.cast(keras.ops.cast(x, "float16"), x.dtype))


def _each(tensors, word, change):
    return {name: change(value) if word in name else value for name, value in tensors.items()}


def _first_output(outputs, change):
    name = next(iter(outputs))
    return outputs | ({name: change(outputs[name])} if "float" in str(outputs[name].dtype) else {})


def _beyond(x, start, share):
    if len(x.shape) < 2:
        return x
    late = keras.ops.cast(keras.ops.arange(keras.ops.shape(x)[1]) >= start, x.dtype)
    return x * (1 + share * keras.ops.reshape(late, (1, -1, *(1 for _ in x.shape[2:]))))


INPUT_FAULTS = {
    "mask": (mask_dropped, mask_inverted, mask_shifted),
    "lengths": (lengths_off_by_one,),
    "cache_index": (slots_shifted, late_slots_shifted),
    "token_ids": (last_word_replaced,),
    "": (batch_rows_exchanged, changed_beyond_64, changed_by_a_thousandth, half_precision),
}


def signature_faults(spec):
    inputs = {each.name for signature in spec.signatures.values() for each in signature.inputs}
    for word, changes in INPUT_FAULTS.items():
        if any(word in name for name in inputs):
            yield from ((change.__name__.replace("_", " "), _functions(change)) for change in changes)


def _functions(change):
    @contextlib.contextmanager
    def plant(spec):
        signatures = {
            name: dataclasses.replace(each, function=lambda tensors, own=each.function: change(dict(tensors), own))
            for name, each in spec.signatures.items()
        }
        yield dataclasses.replace(spec, signatures=signatures)

    return plant


def specification(model, format):
    """The spec of a model with its references and their rounding; of a language model, its steps only."""
    spec = api._spec(api._twin(model), None, None, None, None, None)
    kept = {name: each for name, each in spec.signatures.items() if name in spec.names(format) and name != "generate"}
    spec = dataclasses.replace(spec, signatures=dict(list(kept.items())[:3]))
    measure_rounding(TracedModule(spec), spec)
    return spec


def judge(spec, format, plant=None):
    """Which comparisons refuse a file: a pair of whether the weights do and whether the outputs do."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with plant(spec) if plant else contextlib.nullcontext(spec) as planted:
            traced, manifest = TracedModule(planted), writing.new_manifest(spec, None)
            source = FORMATS[format].source
            if source is not None:
                FORMATS[source].write(traced, planted, folder)
            files = FORMATS[format].write(traced, planted, folder)
        manifest["artifacts"][format] = {"signatures": files}
        probes = {name: each.probes for name, each in spec.signatures.items()}
        return (
            _refused(lambda: check_weights(format, traced, spec, folder, files)),
            _refused(lambda: verify_format(folder, format, probes, None, manifest)),
        )


def _refused(check):
    try:
        check()
    except ExportError:
        return True
    return False


def rows_of(name, format, limit):
    """The row of one model and format, and the faults that pass."""
    keras.utils.set_random_seed(0)
    start, sound = time.perf_counter(), 0
    for weights in (fresh, extreme):
        sound += any(judge(specification(weights(MODELS[name]()), format), format))
    model = randomized(MODELS[name]())
    spec = specification(model, format)
    sound += any(judge(spec, format))
    faults = [*weight_faults(model), *attribute_faults(model), *signature_faults(spec)][:limit]
    found = {label: judge(spec, format, plant) for label, plant in faults}
    missed = [label for label, refused in found.items() if not any(refused)]
    row = {"model": name, "format": format, "faults": len(found), "caught": len(found) - len(missed)}
    row |= {"outputs alone": sum(outputs for _, outputs in found.values()), "sound refused": f"{sound} of 3"}
    return row | {"seconds": round(time.perf_counter() - start)}, missed


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    options = parser.parse_args()
    table = measure.Table("Planted faults", measure.versions("keras-transformer", "keras", "tensorflow", "onnxruntime"))
    for name in options.models:
        for format in options.formats:
            row, missed = rows_of(name, format, 6 if options.tiny else None)
            table.add(**row)
            for label in missed:
                table.note(f"not caught: {name}, {format}: {label}")
    table.finish(options.json)


if __name__ == "__main__":
    main()
