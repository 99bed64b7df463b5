"""float32 in ONNX Runtime: the encoder by batch and length, and ViT-S/16, against PyTorch and KerasHub."""

import pathlib
import tempfile

import numpy as np
from engines import in_words, proven
from hub_weights import with_our_weights
from measure import milliseconds, ratio, take_turns, timed
from networks import ENCODER, TINY, Measures, hub_encoder, our_encoder, our_vit, trained_looking
from peers_torch import compiled, dynamo_onnx, eager, optimized_onnx, torch_encoder, torch_vit

from keras_transformer.export import export

VIT_S = Measures(num_layers=12, num_heads=6, image_size=224)
TOLERANCE = 1e-4


def measure(table, options):
    """Adds the rows of the encoder and of the ViT."""
    measure_networks(table, options, {"encoder": encoder_rows, "vit_s": vit_rows})


def measure_networks(table, options, rows_of):
    """Adds the rows of those networks that the options name; `rows_of` is a dict of name to function."""
    for network, rows in rows_of.items():
        if network in options.networks:
            with tempfile.TemporaryDirectory() as directory:
                rows(table, options, pathlib.Path(directory))


def encoder_rows(table, options, directory):
    measures = encoder_measures(options)
    model = trained_looking(our_encoder(measures))
    network = torch_encoder(model, measures)
    opened = _torch_rivals(network, token_inputs(2, 8, measures), measures, options, directory)
    opened = {"ours": our_file(model, directory, options), **opened}
    opened["KerasHub, ONNX Runtime"] = attempt(lambda: hub_file(model, measures, directory, options))
    for batch, length in options.sizes:
        arrays = token_inputs(batch, length, measures)
        add_rows(
            table, options, opened, arrays, model(arrays), {"network": "encoder", "batch": batch, "length": length}
        )


def encoder_measures(options):
    """Returns the encoder for the longest of the given sizes."""
    measures = ENCODER._replace(dropout=0.0, length=max(length for _, length in options.sizes))
    return measures._replace(**TINY) if options.tiny else measures


def vit_rows(table, options, directory):
    measures = VIT_S._replace(**TINY) if options.tiny else VIT_S
    model = trained_looking(our_vit(measures))
    shape = (1, measures.image_size, measures.image_size, 3)
    images = np.random.default_rng(0).random(shape, "float32")
    network = torch_vit(model, measures)
    turned = {"images": np.ascontiguousarray(images.transpose(0, 3, 1, 2))}
    opened = _torch_rivals(network, turned, measures, options, directory)
    # Images are converted to the layout of each framework beforehand.
    opened = {
        name: run if isinstance(run, str) else lambda arrays, run=run: run(turned) for name, run in opened.items()
    }
    opened = {"ours": our_file(model, directory, options), **opened}
    add_rows(table, options, opened, {"images": images}, model(images), {"network": "vit_s", "batch": 1, "length": 197})


def token_inputs(batch, length, measures):
    token_ids = np.random.default_rng(0).integers(0, measures.vocabulary_size, (batch, length)).astype("int32")
    return {"token_ids": token_ids, "padding_mask": np.ones(token_ids.shape, "bool")}


def our_file(model, directory, options):
    export(model, directory / "ours", formats=["onnx"])
    return session(directory / "ours" / "model.onnx", options.threads)


def session(path, threads):
    """Returns a file in ONNX Runtime, with threads that do not spin after a call, which would slow down other rivals."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    opened = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [value.name for value in opened.get_inputs()]
    types = {value.name: value.type for value in opened.get_inputs()}

    def run(arrays):
        feeds = dict(zip(names, arrays.values(), strict=True)) if set(names) != set(arrays) else arrays
        if "tensor(int64)" in types.values():
            feeds = {
                name: array.astype("int64") if types[name] == "tensor(int64)" else array
                for name, array in feeds.items()
            }
        return opened.run(None, feeds)[0]

    return run


def _torch_rivals(network, arrays, measures, options, directory):
    """Returns a dict of rival to a function of arrays, or to an error text."""
    files = {}

    def exported(opset):
        if opset not in files:
            files[opset] = dynamo_onnx(network, arrays, directory / f"torch_{opset}.onnx", opset)
        return files[opset]

    def optimized(opset):
        return optimized_onnx(exported(opset), directory / f"torch_{opset}_optimized.onnx", measures)

    makers = {
        "torch eager": lambda: eager(network, options.threads),
        "torch.compile": lambda: compiled(network, options.threads),
        "torch, ONNX Runtime": lambda: session(exported(18), options.threads),
        "torch, ONNX Runtime, its optimizer": lambda: session(optimized(18), options.threads),
        "torch opset 23, ONNX Runtime": lambda: session(exported(23), options.threads),
    }
    return {name: attempt(make) for name, make in makers.items() if options.only is None or options.only in name}


def attempt(make):
    try:
        return make()
    except Exception as error:  # Any error of an exporter or a runtime is a result.
        return f"fails: {in_words(error)}"


def hub_file(model, measures, directory, options):
    """Exports KerasHub's encoder with our weights by Keras's own export.

    Its GELU is written with `erf`: ONNX Runtime does not load the file with `keras.ops.gelu`.
    """
    from keras import ops

    def gelu(x):
        return 0.5 * x * (1 + ops.erf(x * 0.5**0.5))

    hub = with_our_weights(hub_encoder(measures, gelu), model)
    hub(token_inputs(1, 2, measures))  # Its export requires a model that was called.
    path = directory / "hub.onnx"
    hub.export(str(path), format="onnx", verbose=False)
    return session(path, options.threads)


def add_rows(table, options, opened, arrays, expected, where, tolerance=TOLERANCE):
    """Times all rivals with correct outputs in turns, and adds a row for each; marks the best peer."""
    expected, valid = np.asarray(expected), {}
    for name, run in opened.items():
        wrong = run if isinstance(run, str) else proven(run, arrays, expected, tolerance)
        if wrong is None:
            valid[name] = run
        elif name == "ours":
            raise RuntimeError(f"Our own file: {wrong}")
        else:
            table.note(f"{where['network']}, {name}: {wrong}")
    rivals = {name: timed(lambda run=run: run(arrays), options.repeat) for name, run in valid.items()}
    turns = take_turns(rivals, options.rounds)
    ours = milliseconds(turns["ours"])
    best = min((name for name in valid if "ours" not in name), key=lambda name: milliseconds(turns[name]), default=None)
    for name in valid:
        if name != "ours":
            label = f"{name} (best)" if name == best else name
            row = {**where, "peer": label, "ours_ms": ours, "peer_ms": milliseconds(turns[name])}
            table.add(**row, **ratio(turns["ours"], turns[name]))
