"""Exports the models of the ONNX graph tests: `onnx_worker.py OUT_DIRECTORY`."""

import dataclasses
import json
import os
import pathlib
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.export import GenerationOptions
from keras_transformer.export.api import export_spec
from keras_transformer.export.onnx import convert as onnx
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.spec.language.spec import language_spec
from keras_transformer.models import Decoder, Encoder, Size, ViT
from keras_transformer.positions import Rotary
from keras_transformer.tasks import LanguageModel

SIZE = Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=24)
VOCABULARY = 40


def randomize(model):
    """Sets random weights, because zeros and ones would hide errors."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign_add(random.normal(0, 0.1, weight.shape))
    return model


def write(model, target, options=None):
    spec = functional_spec(randomize(model))
    export_spec(dataclasses.replace(spec, onnx=options), target, ["onnx"])


def encoder(size=SIZE, **options):
    return Encoder(size, VOCABULARY, max_sequence_length=32, **options)


def scores():
    """Attention with its weights as an output, which fusion must keep."""
    x = keras.Input((None, 16), name="x")
    context, weights = MultiHeadAttention(2, 8)(x, x, return_attention_scores=True)
    return keras.Model(x, {"context": context, "weights": weights})


def two_layers_one_name():
    """Two variables with the same path."""
    inputs = keras.Input((4,), name="x")
    parts = [keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="same")], name="part") for _ in range(2)]
    parts[1].name = "other"
    return keras.Model(inputs, parts[1](parts[0](inputs)))


def norm_behind_convolution():
    """One spatial position is left, so that transposing positions and channels only relabels the axes."""
    tokens = keras.Input((3, 8))
    return keras.Model(tokens, keras.layers.LayerNormalization()(keras.layers.Conv1D(6, kernel_size=3)(tokens)))


def keras_attention(masked=False, causal=False):
    x = keras.Input((None, 16), name="x")
    mask = keras.Input((None,), dtype="bool", name="mask")
    attention = keras.layers.MultiHeadAttention(2, 8, name="attention")
    y = attention(x, x, attention_mask=keras.ops.expand_dims(mask, 1) if masked else None, use_causal_mask=causal)
    return keras.Model({"x": x, "mask": mask} if masked else x, y)


def decoder(target, position="rotary", options=None):
    backbone = Decoder(
        SIZE,
        VOCABULARY,
        max_sequence_length=32,
        position=None,
        attention=MultiHeadAttention(4, 4, num_key_value_heads=2, position=position),
        norm="rms_norm",
        feedforward="gated",
    )
    write_language(backbone, target, ("prefill", "decode", "decode_token"), options)


def write_language(backbone, target, signatures, options=None):
    spec = language_spec(randomize(LanguageModel(backbone)), options=GenerationOptions(prefill_buckets=()))
    kept = {name: signature for name, signature in spec.signatures.items() if name in signatures}
    export_spec(dataclasses.replace(spec, signatures=kept, onnx=options), target, ["onnx"])


def two_blocks(target):
    backbone = Decoder(SIZE._replace(num_layers=2), VOCABULARY, position=Rotary(layout="halves"))
    write_language(backbone, target, ("decode", "generate"))


def external(target):
    limit, onnx._MAX_INLINE = onnx._MAX_INLINE, 1000
    write(encoder(SIZE._replace(num_layers=2)), target)
    onnx._MAX_INLINE = limit


CASES = {
    "encoder": lambda out: write(encoder(SIZE._replace(num_layers=2)), out),
    "post": lambda out: write(encoder(residual="post", activation="gelu_tanh"), out),
    "rms": lambda out: write(encoder(norm="rms_norm", position="rotary"), out),
    "vit": lambda out: write(ViT(SIZE, 8, 16), out),
    "opset_18": lambda out: write(encoder(), out, OnnxOptions(opset=18)),
    "opset_18_standard": lambda out: write(encoder(), out, OnnxOptions(opset=18, contrib_ops=False)),
    "plain": lambda out: write(encoder(), out, OnnxOptions(optimize=False)),
    "scores": lambda out: write(scores(), out),
    "same_names": lambda out: write(two_layers_one_name(), out),
    "norm_behind_convolution": lambda out: write(norm_behind_convolution(), out),
    "keras_masked": lambda out: write(keras_attention(masked=True), out),
    "keras_causal": lambda out: write(keras_attention(causal=True), out),
    "decoder": decoder,
    "decoder_24": lambda out: decoder(out, Rotary(layout="halves", rotary_dim=2), OnnxOptions(opset=24)),
    "two_blocks": two_blocks,
    "external": external,
}


def main(out):
    results = {}
    for name, case in CASES.items():
        keras.utils.set_random_seed(0)
        try:
            case(out / name)
            results[name] = {}
        except Exception:
            results[name] = {"crash": traceback.format_exc()}
        (out / "results.json").write_text(json.dumps(results))
        keras.backend.clear_session()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
