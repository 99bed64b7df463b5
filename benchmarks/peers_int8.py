"""int8 in ONNX Runtime: the encoder by batch and length, and ViT-S/16, against PyTorch's files and our own in float32."""

import numpy as np
from networks import TINY, our_encoder, our_vit, trained_looking
from peers_fp32 import VIT_S, add_rows, attempt, encoder_measures, measure_networks, our_file, session, token_inputs
from peers_torch import dynamo_onnx, optimized_onnx, torch_encoder, torch_vit

from keras_transformer.export import export

# Tolerance for random weights with activations in 8 bits: it detects a wrong network, not rounding.
TOLERANCE = 0.1


def measure(table, options):
    """Adds the rows of the encoder and of the ViT."""
    measure_networks(table, options, {"encoder": encoder_rows, "vit_s": vit_rows})


def encoder_rows(table, options, directory):
    measures = encoder_measures(options)
    model = trained_looking(our_encoder(measures))
    opened = _ours(table, "encoder", model, directory, options)
    opened |= _torch(torch_encoder(model, measures), token_inputs(2, 8, measures), measures, options, directory)
    for batch, length in options.sizes:
        arrays = token_inputs(batch, length, measures)
        where = {"network": "encoder, int8", "batch": batch, "length": length}
        add_rows(table, options, opened, arrays, model(arrays), where, TOLERANCE)


def vit_rows(table, options, directory):
    measures = VIT_S._replace(**TINY) if options.tiny else VIT_S
    model = trained_looking(our_vit(measures))
    images = np.random.default_rng(0).random((1, measures.image_size, measures.image_size, 3), "float32")
    turned = {"images": np.ascontiguousarray(images.transpose(0, 3, 1, 2))}
    opened = _torch(torch_vit(model, measures), turned, measures, options, directory)
    opened = {
        name: run if isinstance(run, str) else lambda arrays, run=run: run(turned) for name, run in opened.items()
    }
    opened = {**_ours(table, "vit_s", model, directory, options), **opened}
    where = {"network": "vit_s, int8", "batch": 1, "length": 197}
    add_rows(table, options, opened, {"images": images}, model(images), where, TOLERANCE)


def _ours(table, network, model, directory, options):
    """Returns our int8 file as "ours", and the float32 one as a rival."""
    report = export(model, directory / "int8", formats=["onnx"], quantize="int8")
    table.note(f"{network}: our int8 file has {report['onnx'].size / report['onnx'].float_size:.3f} of the float bytes")
    small = session(directory / "int8" / "model.onnx", options.threads)
    return {"ours": small, "ours, float32": our_file(model, directory, options)}


def _torch(network, arrays, measures, options, directory):
    """Returns PyTorch's files, plain and optimized by ONNX Runtime, after its dynamic quantization."""
    source = attempt(lambda: dynamo_onnx(network, arrays, directory / "torch.onnx", 18))
    if isinstance(source, str):
        return {"torch, ONNX Runtime, int8": source}

    def quantized(path, name):
        from onnxruntime.quantization import QuantType, quantize_dynamic

        target = directory / f"{name}.onnx"
        quantize_dynamic(str(path), str(target), per_channel=True, weight_type=QuantType.QInt8)
        return session(target, options.threads)

    def optimized():
        path = optimized_onnx(source, directory / "optimized.onnx", measures)
        return quantized(path, "optimized_int8")

    return {
        "torch, ONNX Runtime, int8": attempt(lambda: quantized(source, "torch_int8")),
        "torch, ONNX Runtime, its optimizer, int8": attempt(optimized),
    }
