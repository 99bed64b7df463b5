"""LiteRT, float32 and int8: the encoder by batch and length, and ViT-S/16, against KerasHub's file and litert-torch's.

Ours runs the signature of fixed shapes; `ours, dynamic` is the same file's signature that takes any. KerasHub's file is
dynamic, litert-torch's is made for each shape. int8: ours by `export`, KerasHub's by the TFLite converter's dynamic range,
litert-torch's by ai-edge-quantizer's; a peer that is not installed is left out with a note.
"""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from engines import in_words
from measure import milliseconds, ratio, take_turns, timed
from networks import ENCODER, TINY, Measures, hub_encoder, hub_vit, our_encoder, our_vit, trained_looking

from keras_transformer.export import export_spec
from keras_transformer.export.functional import functional_spec
from keras_transformer.export.quantization import Quantization
from keras_transformer.export.tflite.quantize import quantized
from keras_transformer.export.tflite.signatures import static_signatures

SIZES = ((1, 128), (8, 128), (1, 512), (8, 512))
VIT_S = Measures(num_layers=12, num_heads=6, image_size=224)
KINDS = ("fp32", "int8")


def measure(table, options):
    """Adds the rows of the encoder and of the ViT."""
    for network, rows in (("encoder", _encoder_rows), ("vit_s", _vit_rows)):
        if network in options.networks:
            with tempfile.TemporaryDirectory() as directory:
                rows(table, options, pathlib.Path(directory))


def _encoder_rows(table, options, directory):
    sizes = ((1, 4), (2, 8)) if options.tiny else SIZES
    measures = ENCODER._replace(dropout=0.0, length=max(length for _, length in sizes))
    measures = measures._replace(**TINY) if options.tiny else measures
    model, hub = trained_looking(our_encoder(measures)), trained_looking(hub_encoder(measures))
    ours = _our_files(model, [{"batch": batch, "length": length} for batch, length in sizes], directory)
    peers = _hub_files(hub, directory)
    for batch, length in sizes:
        token_ids = np.random.default_rng(0).integers(0, measures.vocabulary_size, (batch, length)).astype("int32")
        arrays = {"token_ids": token_ids, "padding_mask": np.ones(token_ids.shape, "bool")}
        torch_files = _torch_files("torch_encoder", model, measures, arrays, directory, table)
        case = {"network": "encoder", "batch": batch, "length": length}
        signature = f"serve_{batch}x{length}"
        _rows(table, options, case, arrays, model(arrays), _opened(ours, peers, torch_files, signature, options))


def _vit_rows(table, options, directory):
    measures = VIT_S._replace(**TINY) if options.tiny else VIT_S
    model, hub = trained_looking(our_vit(measures)), trained_looking(hub_vit(measures))
    ours, peers = _our_files(model, [{"batch": 1}], directory), _hub_files(hub, directory)
    arrays = {"images": np.random.default_rng(0).random((1, measures.image_size, measures.image_size, 3), "float32")}
    turned = {"images": np.ascontiguousarray(arrays["images"].transpose(0, 3, 1, 2))}
    torch_files = _torch_files("torch_vit", model, measures, turned, directory, table)
    case = {"network": "vit_s", "batch": 1, "length": (measures.image_size // measures.patch_size) ** 2 + 1}
    _rows(table, options, case, arrays, model(arrays), _opened(ours, peers, torch_files, "serve_1", options))


def _our_files(model, sizes, directory):
    """Dict of kind to the path of our file."""
    spec = static_signatures(functional_spec(model), sizes)
    export_spec(spec, directory / "ours", ["tflite"])
    path = directory / "ours" / "model.tflite"
    small = directory / "ours_int8.tflite"
    small.write_bytes(quantized(path.read_bytes(), Quantization("int8"), spec.variables))
    return {"fp32": path, "int8": small}


def _hub_files(model, directory):
    """KerasHub's own export, and the converter's dynamic range on its SavedModel."""
    path, saved = directory / "hub.tflite", directory / "hub_saved_model"
    model.export(str(path), format="litert", verbose=False)
    model.export(str(saved), verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    small = directory / "hub_int8.tflite"
    small.write_bytes(converter.convert())
    return {"fp32": path, "int8": small}


def _torch_files(builder, model, measures, arrays, directory, table):
    """litert-torch's file of exactly these shapes, and ai-edge-quantizer's of it; what is not there is left out."""
    try:
        import litert_torch
        import peers_torch
        import torch

        network = getattr(peers_torch, builder)(model, measures)
        shapes = "x".join(map(str, next(iter(arrays.values())).shape))
        path = directory / f"torch_{shapes}.tflite"
        litert_torch.convert(network.eval(), tuple(map(torch.from_numpy, arrays.values()))).export(str(path))
        from ai_edge_quantizer import quantizer, recipe

        small = directory / f"torch_{shapes}_int8.tflite"
        found = quantizer.Quantizer(str(path), recipe.dynamic_wi8_afp32()).quantize()
        small.write_bytes(found.quantized_model)
        return {"fp32": path, "int8": small}
    except Exception as error:  # Not installed, or whatever it raises, is the finding.
        table.note(f"litert-torch: {in_words(error)}")
        return {}


def _opened(ours, peers, torch_files, signature, options):
    """Dict of kind to a dict of rival to `(function of arrays, size of its file)`."""
    found = {}
    for kind in KINDS:
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
    """One signature as a function of arrays: they are given by name where the names are ours, else in their order."""
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
    """Images in the layout that a file asks for."""
    is_other = array.ndim == 4 and tuple(array.shape) != tuple(shape)
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if is_other and shape[1] == array.shape[3] else array


def _rows(table, options, case, arrays, expected, opened):
    turns = take_turns(
        {
            (kind, name): timed(lambda run=run: run(arrays), options.repeat)
            for kind, rivals in opened.items()
            for name, (run, _) in rivals.items()
        },
        options.rounds,
    )
    scale = float(np.abs(expected).max())
    for kind, rivals in opened.items():
        run, size = rivals["ours"]
        row = {**case, "kind": kind, "ours_ms": milliseconds(turns[kind, "ours"])}
        row["of_scale"] = round(float(np.abs(run(arrays) - expected).max()) / scale, 6)
        row["of_fp32_size"] = round(size / opened["fp32"]["ours"][1], 3)
        pairs = [(kind, name) for name in rivals if name != "ours"] + [("fp32", "ours")] * (kind != "fp32")
        for pair in pairs:
            peer = f"{pair[1]}, {pair[0]}"
            table.add(**row, peer=peer, peer_ms=milliseconds(turns[pair]), **ratio(turns[kind, "ours"], turns[pair]))
