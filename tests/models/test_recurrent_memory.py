"""The Recurrent Memory Transformer against its authors' code around GPT-2, and its gradients through segments."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import models

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "rmt_gpt2.npz")
PREFIX = "params/model.transformer."


def weights(name):
    return [GOLDEN[f"{PREFIX}{name}.{part}"] for part in ("weight", "bias")]


@pytest.fixture(scope="module")
def reference():
    """The authors' weights: three segments of eight tokens, three memory tokens."""
    norm = keras.layers.LayerNormalization(epsilon=1e-5)
    size = models.Size(2, 16, 2, 64)
    model = models.RecurrentMemory(size, 19, segment_length=8, num_memory_tokens=3, norm=norm)
    model.get_layer("token_embedding").set_weights([GOLDEN[f"{PREFIX}wte.weight"]])
    stack = model.get_layer("memory_stack")
    stack.memory.assign(GOLDEN["params/memory"])
    stack.positions.assign(GOLDEN[f"{PREFIX}wpe.weight"][:14])
    stack.norm.set_weights(weights("ln_f"))
    for index, block in enumerate(stack.blocks):
        name, mixer = f"h.{index}.", block.mixer
        heads = [np.split(part, 3, axis=-1) for part in weights(f"{name}attn.c_attn")]
        for dense, kernel, bias in zip((mixer.query_dense, mixer.key_dense, mixer.value_dense), *heads, strict=True):
            dense.set_weights([kernel.reshape(16, 2, 8), bias.reshape(2, 8)])
        kernel, bias = weights(f"{name}attn.c_proj")
        mixer.output_dense.set_weights([kernel.reshape(2, 8, 16), bias])
        block.feedforward.set_weights(weights(f"{name}mlp.c_fc") + weights(f"{name}mlp.c_proj"))
        block.mixer_residual.set_weights(weights(f"{name}ln_1"))
        block.feedforward_residual.set_weights(weights(f"{name}ln_2"))
    return model


def test_the_reference_whole(reference):
    ids = GOLDEN["inputs/ids"]
    hidden = np.asarray(reference({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))
    logits = hidden @ GOLDEN[f"{PREFIX}wte.weight"].T
    np.testing.assert_allclose(logits, GOLDEN["outputs/logits"], atol=1e-5)
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    loss = -np.take_along_axis(logs[:, :-1], ids[:, 1:, None], axis=2).mean()
    np.testing.assert_allclose(loss, GOLDEN["outputs/loss"], atol=1e-5)


def test_rows_that_are_padded_on_the_left(reference):
    """By three tokens, and by a whole segment and two more: then the first memory passes a segment without tokens."""
    ids, padded = GOLDEN["inputs/ids"], np.load(Path(__file__).parents[1] / "data" / "rmt_left_padded.npz")
    mask, logits = padded["mask"], padded["logits"]
    assert (~mask).sum(axis=1).tolist() == [3, 10]
    for hidden_ids in (ids, np.where(mask, ids, 0)):
        hidden = np.asarray(reference({"token_ids": hidden_ids, "padding_mask": mask}))
        np.testing.assert_allclose((hidden @ GOLDEN[f"{PREFIX}wte.weight"].T)[mask], logits[mask], atol=1e-5)


@pytest.mark.parametrize("sizes", [[24], [8, 8, 8], [3, 1, 13, 7], [1] * 24])
def test_the_reference_with_its_cache(reference, sizes):
    """At the end, the memory is that before the last segment."""
    ids, steps, outputs, start = GOLDEN["inputs/ids"], models.Stepwise(reference), [], 0
    cache = steps.init_cache(len(ids), max_length=1)
    for size in sizes:
        output, cache = steps(ids[:, start : start + size], cache, np.full(len(ids), start, "int32"))
        outputs.append(np.asarray(output))
        start += size
    logits = np.concatenate(outputs, axis=1) @ GOLDEN[f"{PREFIX}wte.weight"].T
    np.testing.assert_allclose(logits, GOLDEN["outputs/logits"], atol=1e-5)
    np.testing.assert_allclose(cache["memory_stack_memory"], GOLDEN["outputs/memory_1"], atol=1e-5)
