"""Lowers training steps for CUDA on a machine without a GPU, and prints what attention is made of, as JSON.

    KERAS_BACKEND=jax python tests/backend/cuda_programs.py [causal alibi ...]

All programs, or those that are named, with the differences of a kernel without padding. The programs are those that JAX
gives to XLA; a card and cuDNN's library are only claimed, and nothing runs.
"""

import functools
import json
import re
import sys
from unittest import mock

import jax
import keras
import numpy as np
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from keras import ops

from keras_transformer import attention, data, models, tasks
from keras_transformer.attention.mechanisms import softmax
from keras_transformer.backend.kernels import fused_attention
from keras_transformer.training import MaskedCrossentropy

LENGTH, WINDOW, WORDS = 96, 20, 64  # No other size of the networks is 96.
LONG, BLOCK = (
    160,
    128,
)  # Rows that are long for the width of NARROW, and the tokens of a block of the kernel with segments.
NARROW = models.Size(2, 32, 2, 64)
SIZE = models.Size(2, 32, 4, 64)
PLAIN = {"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0}


def text(mask):
    ids = np.ones((2, LENGTH), "int32")
    return {"token_ids": ids, "padding_mask": np.ones((2, LENGTH), bool) if mask else None}, ids


def gpt2(**options):
    return tasks.LanguageModel(models.GPT2(SIZE, WORDS, max_sequence_length=LENGTH, **PLAIN, **options))


def packed_and_grouped():
    mixer = attention.MultiHeadAttention(2, 16, num_key_value_heads=1, position="rotary")
    return tasks.LanguageModel(models.Decoder(NARROW, WORDS, position=None, attention=mixer, packed=True))


def with_window():
    mixer = attention.MultiHeadAttention(4, 8, sliding_window=WINDOW)
    return tasks.LanguageModel(models.Decoder(SIZE, WORDS, max_sequence_length=LENGTH, attention=mixer))


CASES = {
    "causal": lambda: (gpt2(), text(False)),
    "padding": lambda: (gpt2(), text(True)),
    "grouped": lambda: (tasks.LanguageModel(models.Llama(SIZE, WORDS, num_key_value_heads=2)), text(False)),
    "window": lambda: (with_window(), text(False)),
    "local": lambda: (tasks.LanguageModel(models.Mistral(SIZE, WORDS, window=WINDOW)), text(False)),
    "alibi": lambda: (tasks.LanguageModel(models.BLOOM(SIZE, WORDS)), text(False)),
    "segments": lambda: (gpt2(packed=True), data.pack([[1] * 60, [2] * 30], LENGTH, 2)[0]),
    "long segments": lambda: (packed_and_grouped(), data.pack([[1] * 100, [2] * 50, [3] * 90], LONG, 2)[0]),
    "images": lambda: (
        tasks.ImageClassifier(models.ViT(SIZE, 4, 16), 5, activation=None),
        (np.zeros((2, 16, 16, 3), "float32"), np.zeros(2, "int32")),
    ),
    "dropout": lambda: (tasks.LanguageModel(models.GPT2(SIZE, WORDS, max_sequence_length=LENGTH)), text(False)),
}


def training_step(model, batch):
    """The step of `fit` as Keras compiles it, with its state, which is donated, and the batch on the device."""
    model.compile("adamw", MaskedCrossentropy())
    model.optimizer.build(model.trainable_variables)
    variables = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in each] for each in variables)
    return jax.jit(model.train_step, donate_argnums=0), state, jax.device_put(batch)


def cuda_program(model, batch):
    step, state, batch = training_step(model, batch)
    return step.trace(state, batch).lower(lowering_platforms=("cuda",)).as_text(), sum(map(len, state))


def describe(program, count):
    calls = re.findall(r"custom_call @__cudnn\$fmha(\w+)\((.*?)-> ", program)
    return {
        "forward": [name for name, _ in calls if "Backward" not in name],
        "backward": [name for name, _ in calls if "Backward" in name],
        "masks": sorted(set(re.findall(r"mask_type\\22: \\22(\w+)", program))),
        "windows": sorted(set(re.findall(r"sliding_window_length\\22: (\d+)", program))),
        "heads": sorted(set(re.findall(rf"tensor<2x{LENGTH}x(\d)x8xbf16>", " ".join(each for _, each in calls)))),
        "segmented": sorted(re.findall(r'name = "(mha_\w+)"', program)),
        "has_scores": any(f"{length}x{length}x" in program for length in (LENGTH, LONG, 2 * BLOCK)),
        "donated": len(re.findall(r"tf.aliasing_output|jax.buffer_donor", program)),
        "variables": count,
        "callbacks": re.findall(r"callback|infeed|outfeed|send|recv", program),
    }


def programs(policy, names):
    keras.config.set_dtype_policy(policy)
    found = {}
    with (
        mock.patch.object(cudnn, "check_cudnn_version", return_value=91100),
        mock.patch.object(fused_attention, "cuda_capability", return_value=(9, 0)),
    ):
        for name in names:
            found[name] = describe(*cuda_program(*CASES[name]()))
    keras.config.set_dtype_policy("float32")
    return found


def guarded():
    """Runs steps without any transfer: with a batch on the device, and with one that would have to be sent to it."""
    batch = text(False)
    step, state, on_device = training_step(gpt2(), batch)
    _, state = step(state, on_device)  # Compiles it.
    with jax.transfer_guard("disallow"):
        logs, state = step(state, on_device)
        try:
            step(state, batch)
        except Exception as error:
            return float(logs["loss"]), "Disallowed host-to-device transfer" in str(error)
    return float(logs["loss"]), False


def differences(every):
    """Largest differences of values and gradients between the calls of a kernel, computed by XLA, and plain softmax."""
    by_jax = fused_attention._by_jax

    def as_xla(query, key, value, window, implementation, **options):
        return by_jax(query, key, value, window, "xla", **options)

    found = {"xla": {name: _difference(visible) for name, visible in visibilities(12).items()}}
    if not every:
        return found
    # As for cuDNN, which pads odd lengths.
    with (
        mock.patch.object(fused_attention, "_has_cudnn_attention", return_value=True),
        mock.patch.object(fused_attention, "_by_jax", as_xla),
    ):
        found["padded"] = {name: _difference(visible) for name, visible in visibilities(11).items()}
    interpreted = functools.partial(fused_attention._segment_kernel, interpret=True)
    with (
        mock.patch.object(softmax, "has_segment_attention", return_value=True),
        mock.patch.object(fused_attention, "_segment_kernel", interpreted),
    ):
        found["segments"] = {name: _difference(visible, width=16) for name, visible in segmented(BLOCK + 30).items()}
    return found


def segmented(length):
    slots, ids = np.arange(length), np.repeat([[1, 2, 3], [1, 2, 0]], [40, 60, length - 100], axis=1).astype("int32")
    cases = {"full": False, "causal": True}
    return {
        name: attention.Visibility.from_slots(slots, slots, causal=causal, segment_ids=ids)
        for name, causal in cases.items()
    }


def visibilities(length):
    slots, real = np.arange(length), np.arange(length)[None] < np.array([[length], [7]])
    segments = attention.segment_mask(np.array([[1] * 5 + [2] * (length - 5), [1] * 9 + [0] * (length - 9)]))
    cases = {
        "full": {},
        "causal": {"causal": True},
        "window": {"causal": True, "window": 3},
        "both sides": {"window": 3},
        "padding": {"key_mask": real},
        "left": {"causal": True, "key_mask": real[:, ::-1], "query_mask": real[:, ::-1]},
        "segments": {"causal": True, "attention_mask": segments},
    }
    return {name: attention.Visibility.from_slots(slots, slots, **each) for name, each in cases.items()}


def _difference(visible, width=8):
    random, length = np.random.default_rng(0), len(visible.query_slots)
    arrays = [random.normal(size=(2, length, heads, width)).astype("float32") for heads in (4, 2, 2)]

    def outcome(mechanism):
        def total(*arrays):
            return ops.sum(ops.sin(mechanism(*arrays, visibility=visible)))

        def both(*arrays):
            return mechanism(*arrays, visibility=visible), *jax.grad(total, argnums=(0, 1, 2))(*arrays)

        return jax.jit(both)(*arrays)

    pairs = zip(*(outcome(attention.SoftmaxAttention(flash_attention=each)) for each in (None, False)), strict=True)
    return max(float(ops.max(ops.abs(a - b))) for a, b in pairs)


def main(names):
    found = programs("mixed_bfloat16", names or CASES) | {"float32": programs("float32", ["causal"])["causal"]}
    print(json.dumps({"programs": found, "differences": differences(every=not names), "guarded": guarded()}))


if __name__ == "__main__":
    main(sys.argv[1:])
