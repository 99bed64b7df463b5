"""Transformer-XL against its authors' model; generation and export are tested with the other models of fixed state."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import models

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "transformer_xl_model.npz")


@pytest.fixture(scope="module")
def reference():
    """The authors' weights: three segments of six tokens, a memory of eight."""
    norm = keras.layers.LayerNormalization(epsilon=1e-5)
    model = models.TransformerXL(models.Size(2, 16, 2, 32), 19, segment_length=6, memory_length=8, norm=norm)
    model.get_layer("token_embedding").set_weights([GOLDEN["params/word_emb.emb_layers.0.weight"]])
    for index in range(2):
        block, name = model.get_layer(f"decoder_block_{index}"), f"params/layers.{index}."
        arrays = {key.removeprefix(name): GOLDEN[key] for key in GOLDEN.files if key.startswith(name)}
        heads = [part.T.reshape(16, 2, 8) for part in np.split(arrays["dec_attn.qkv_net.weight"], 3)]
        biases = [GOLDEN[f"params/r_{which}_bias"] for which in ("w", "r")]
        weights = {
            "query": heads[:1],
            "key": heads[1:2],
            "value": heads[2:],
            "attention_output": [arrays["dec_attn.o_net.weight"].T.reshape(2, 8, 16)],
        }
        mixer = block.mixer
        for dense in (mixer._query_dense, mixer._key_dense, mixer._value_dense, mixer.output_dense):
            dense.set_weights(weights[dense.name])
        mixer.position.set_weights([arrays["dec_attn.r_net.weight"].T.reshape(16, 2, 8), *biases])
        feed = [f"pos_ff.CoreNet.{place}.{part}" for place in (0, 3) for part in ("weight", "bias")]
        block.feedforward.set_weights([arrays[each].T for each in feed])
        for residual, part in ((block.mixer_residual, "dec_attn"), (block.feedforward_residual, "pos_ff")):
            residual.set_weights([arrays[f"{part}.layer_norm.{each}"] for each in ("weight", "bias")])
    return model


def losses(hidden, ids):
    """Of the very tokens that are read, as the file has them."""
    logits = hidden @ GOLDEN["params/crit.out_layers.0.weight"].T + GOLDEN["params/crit.out_layers.0.bias"]
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(logs, ids[:, :, None], axis=2)[:, :, 0]


def expected(name):
    return np.concatenate([GOLDEN[f"outputs/{name}_{index}"] for index in range(3)]).swapaxes(0, 1)


def test_the_reference_in_parallel(reference):
    ids = GOLDEN["inputs/ids"].T
    hidden = np.asarray(reference({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))
    np.testing.assert_allclose(hidden, expected("hidden"), atol=1e-5)
    np.testing.assert_allclose(losses(hidden, ids), expected("nll"), atol=1e-5)


@pytest.mark.parametrize("sizes", [[18], [6, 6, 6], [7, 1, 10], [1] * 18])
def test_the_reference_with_its_cache(reference, sizes):
    ids, steps, outputs, start = GOLDEN["inputs/ids"].T, models.Stepwise(reference), [], 0
    cache = steps.init_cache(2, max_length=1)
    for size in sizes:
        output, cache = steps(ids[:, start : start + size], cache, np.full(2, start, "int32"))
        outputs.append(np.asarray(output))
        start += size
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), expected("hidden"), atol=1e-5)
