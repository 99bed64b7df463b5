"""LiteRT, float32 and int8: the encoder by batch and length, and ViT-S/16, against KerasHub's file and litert-torch's.

Ours runs the signature of fixed shapes; `ours, dynamic` is the dynamic signature of the same file. KerasHub's file is
dynamic, litert-torch's is exported for each shape. int8: ours by `export`, KerasHub's by dynamic range quantization of the
TFLite converter, litert-torch's by that of ai-edge-quantizer; a peer that is not installed is skipped with a note.
"""

import keras
import numpy as np
import tensorflow as tf
from engines import in_words, proven
from hub_weights import with_our_weights
from measure import kept, milliseconds, ratio, take_turns, timed, working_folder
from networks import TINY, hub_encoder, hub_vit, our_encoder, our_vit, trained_looking
from peers_fp32 import VIT_S, encoder_measures, token_inputs

from keras_transformer.export import Int8, export_spec
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.spec.static_signatures import static_signatures
from keras_transformer.export.tflite.quantization.quantize import quantized

# Tolerance relative to the output scale.
TOLERANCES = {"fp32": 1e-4, "int8": 0.1}


def measure(table, options):
    """Adds the rows of the encoder and of the ViT."""
    for network, rows in (("encoder", _encoder_rows), ("vit_s", _vit_rows)):
        if network in options.networks:
            keras.utils.set_random_seed(0)
            with working_folder(options.files, f"tflite_{network}") as directory:
                rows(table, options, directory)


def _encoder_rows(table, options, directory):
    measures = encoder_measures(options)
    model = trained_looking(our_encoder(measures))
    sizes = [{"batch": batch, "length": length} for batch, length in options.sizes]
    ours = _our_files(model, sizes, directory)
    peers = _hub_files(lambda: with_our_weights(hub_encoder(measures), model), directory)
    for batch, length in options.sizes:
        arrays = token_inputs(batch, length, measures)
        torch_files = _torch_files("torch_encoder", model, measures, arrays, directory, table)
        case = {"network": "encoder", "batch": batch, "length": length}
        opened = _opened(ours, peers, torch_files, f"serve_{batch}x{length}", options)
        _rows(table, options, case, arrays, np.asarray(model(arrays)), opened)


def _vit_rows(table, options, directory):
    measures = VIT_S._replace(**TINY) if options.tiny else VIT_S
    model = trained_looking(our_vit(measures))
    ours = _our_files(model, [{"batch": 1}], directory)
    peers = _hub_files(lambda: with_our_weights(hub_vit(measures), model), directory)
    arrays = {"images": np.random.default_rng(0).random((1, measures.image_size, measures.image_size, 3), "float32")}
    turned = {"images": np.ascontiguousarray(arrays["images"].transpose(0, 3, 1, 2))}
    torch_files = _torch_files("torch_vit", model, measures, turned, directory, table)
    case = {"network": "vit_s", "batch": 1, "length": (measures.image_size // measures.patch_size) ** 2 + 1}
    opened = _opened(ours, peers, torch_files, "serve_1", options)
    _rows(table, options, case, arrays, np.asarray(model(arrays)), opened)


def _our_files(model, sizes, directory):
    """Returns a dict of kind to the path of our file."""
    spec = static_signatures(functional_spec(model), sizes)
    path = kept(directory / "ours", lambda path: export_spec(spec, path, ["tflite"])) / "model.tflite"

    def quantize(small):
        small.write_bytes(quantized(path.read_bytes(), Int8(), spec.variables))

    return {"fp32": path, "int8": kept(directory / "ours_int8.tflite", quantize)}


def _hub_files(make_model, directory):
    """Returns the files of KerasHub's own export, and of the converter's dynamic range quantization."""

    def convert(small):
        saved = directory / "hub_saved_model"
        make_model().export(str(saved), verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        small.write_bytes(converter.convert())

    def export(path):
        make_model().export(str(path), format="litert", verbose=False)

    return {"fp32": kept(directory / "hub.tflite", export), "int8": kept(directory / "hub_int8.tflite", convert)}


def _torch_files(builder, model, measures, arrays, directory, table):
    """Returns litert-torch's file for these shapes, and ai-edge-quantizer's of it, if installed."""
    shapes = "x".join(map(str, next(iter(arrays.values())).shape))

    def convert(path):
        import litert_torch
        import peers_torch
        import torch

        network = getattr(peers_torch, builder)(model, measures)
        litert_torch.convert(network.eval(), tuple(map(torch.from_numpy, arrays.values()))).export(str(path))

    def quantize(small):
        from ai_edge_quantizer import quantizer, recipe

        found = quantizer.Quantizer(str(path), recipe.dynamic_wi8_afp32()).quantize()
        small.write_bytes(found.quantized_model)

    try:
        path = kept(directory / f"torch_{shapes}.tflite", convert)
        return {"fp32": path, "int8": kept(directory / f"torch_{shapes}_int8.tflite", quantize)}
    except Exception as error:  # A missing package or any error is a result.
        table.note(f"litert-torch: {in_words(error)}")
        return {}


def _opened(ours, peers, torch_files, signature, options):
    """Returns a dict of kind to a dict of rival to `(function of arrays, size of its file)`."""
    found = {}
    for kind in TOLERANCES:
        files = {
            "ours": (ours[kind], signature),
            "ours, dynamic": (ours[kind], "serve"),
            "KerasHub": (peers[kind], None),
            "litert-torch": (torch_files.get(kind), None),
        }
        found[kind] = {
            name: (_runner(path, each, options.threads), path.stat().st_size)
            for name, (path, each) in files.items()
            if path is not None
        }
    return found


def _runner(path, signature, threads):
    """Returns a signature as a function of arrays, passed by name if the names are ours, else in order."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    runner = interpreter.get_signature_runner(signature or next(iter(interpreter.get_signature_list())))
    details = runner.get_input_details()

    def run(arrays):
        if set(details) != set(arrays):
            order = zip(sorted(details), arrays.values(), strict=True)
            arrays = {name: _turned(array, details[name]["shape"]) for name, array in order}
        return next(iter(runner(**arrays).values()))

    return run


def _turned(array, shape):
    """Returns images in the layout of a file's inputs."""
    is_other = array.ndim == 4 and tuple(array.shape) != tuple(shape)
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if is_other and shape[1] == array.shape[3] else array


def _rows(table, options, case, arrays, expected, opened):
    """Times all rivals with correct outputs in turns; adds a row per peer of the same kind."""
    right = {}
    for kind, rivals in opened.items():
        for name, (run, size) in rivals.items():
            wrong = proven(run, arrays, expected, TOLERANCES[kind])
            if wrong is None:
                right[kind, name] = run, size
            elif name.startswith("ours"):
                raise RuntimeError(f"{name}, {kind}: {wrong}")
            else:
                table.note(f"{case['network']}, {name}, {kind}: {wrong}")
    runs = {pair: timed(lambda run=run: run(arrays), options.repeat) for pair, (run, _) in right.items()}
    turns = take_turns(runs, options.rounds)
    scale = float(np.abs(expected).max())
    for kind in opened:
        run, size = right[kind, "ours"]
        row = {**case, "kind": kind, "ours_ms": milliseconds(turns[kind, "ours"])}
        row["of_scale"] = round(float(np.abs(run(arrays) - expected).max()) / scale, 6)
        row["of_fp32_size"] = round(size / right["fp32", "ours"][1], 3)
        pairs = [pair for pair in right if pair[0] == kind and pair[1] != "ours"]
        for pair in pairs + [("fp32", "ours")] * (kind != "fp32"):
            peer = f"{pair[1]}, {pair[0]}"
            table.add(**row, peer=peer, peer_ms=milliseconds(turns[pair]), **ratio(turns[kind, "ours"], turns[pair]))
