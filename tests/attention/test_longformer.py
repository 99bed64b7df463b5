"""Longformer's windows and global tokens against the reference, and against the dense formula."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import LongformerAttention

DATA = Path(__file__).parents[1] / "data"


def of_reference(golden, **options):
    """The layer with the weights of the reference, and an identity for the output projection that it has not."""
    layer = LongformerAttention(2, 8, attention_window=8, **options)
    layer.build((2, 24, 16), (2, 24, 16))
    names = ["query", "key", "value"]
    if options:
        names += ["query_global", "key_global", "value_global"]
    weights = []
    for name in names:
        weights.append(golden[f"params/{name}.weight"].T.reshape(16, 2, 8))
        weights.append(golden[f"params/{name}.bias"].reshape(2, 8))
    layer.set_weights([*weights, np.eye(16).reshape(2, 8, 16), np.zeros(16)])
    return layer


def test_reference():
    golden = np.load(DATA / "longformer_attention.npz")
    x, mask = golden["inputs/x"], golden["inputs/key_mask"]
    masks = {"query_mask": mask, "value_mask": mask}
    np.testing.assert_allclose(of_reference(golden)(x, x, **masks), golden["outputs/y_no_global"], atol=1e-6)
    first = of_reference(golden, num_global_tokens=1)
    np.testing.assert_allclose(first(x, x, **masks), golden["outputs/y"], atol=1e-6)
    marked = of_reference(golden, max_global_tokens=3)
    output = marked(x, x, global_mask=golden["inputs/global_mask"], **masks)
    np.testing.assert_allclose(output, golden["outputs/y"], atol=1e-6)


def dense(layer, x, mask, is_global, causal):
    """The formula in float64, with a mask of queries by keys."""
    names = [weight.path.split("/")[-2] for weight in layer.weights]
    weights = dict(zip(names, (np.asarray(weight, float) for weight in layer.weights), strict=True))
    heads = {
        name: np.einsum("btd,dnh->bnth", x.astype(float), weights[name]) for name in weights if "output" not in name
    }
    length, dilations = x.shape[1], np.array(layer._dilations)[:, None, None]
    distances = np.arange(length)[:, None] - np.arange(length)[None]
    window = (np.abs(distances) <= layer.attention_window // 2 * dilations) & (distances % dilations == 0)
    seen = window[None] | is_global[:, None, None, :] | is_global[:, None, :, None]
    seen = seen & mask[:, None, None, :] & ((distances >= 0) | (not causal))
    contexts = []
    for suffix in ("", "_global"):
        scores = np.einsum("bnth,bnsh->bnts", heads["query" + suffix], heads["key" + suffix]) / np.sqrt(layer.key_dim)
        exponentials = np.exp(scores) * seen
        weighed = exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-30)
        contexts.append(np.einsum("bnts,bnsh->btnh", weighed, heads["value" + suffix]))
    context = np.where(is_global[:, :, None, None], contexts[1], contexts[0]) * mask[:, :, None, None]
    return np.einsum("btnh,nhd->btd", context, weights["attention_output"])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dilation", [1, 3, [1, 2, 2, 1]])
def test_any_length_is_the_dense_formula(causal, dilation):
    options = {"attention_window": 4, "dilation": dilation, "use_bias": False}
    layer = LongformerAttention(4, 3, num_global_tokens=2, max_global_tokens=3, **options)
    rng = np.random.default_rng(0)
    for length in (1, 2, 7, 30):
        x, mask = rng.normal(size=(2, length, 6)).astype("float32"), rng.uniform(size=(2, length)) > 0.2
        marks = rng.uniform(size=(2, length)) > 0.9
        marks = marks & (np.cumsum(marks & mask, axis=1) <= 3)
        first = np.tile(np.arange(length) < 2, (2, 1))
        masks = {"query_mask": mask, "value_mask": mask, "use_causal_mask": causal}
        output = layer(x, x, **masks)
        np.testing.assert_allclose(output, dense(layer, x, mask, first, causal), atol=2e-6)
        output = layer(x, x, global_mask=marks, **masks)
        np.testing.assert_allclose(output, dense(layer, x, mask, first | marks, causal), atol=2e-6)


def test_further_global_tokens_than_there_is_room_for_are_as_all_tokens():
    layer = LongformerAttention(2, 4, attention_window=2, max_global_tokens=1)
    x = np.random.default_rng(0).normal(size=(1, 9, 8)).astype("float32")
    marks = np.zeros((1, 9), bool)
    marks[0, [3, 6]] = True
    first = np.arange(9)[None] == 3
    np.testing.assert_array_equal(layer(x, x, global_mask=marks), layer(x, x, global_mask=first))


@pytest.mark.parametrize("dilation", [1, [1, 3]])
def test_cache_keeps_window_and_global_tokens(dilation):
    """Chunks longer and shorter than the window, far beyond it."""
    layer = LongformerAttention(2, 4, attention_window=4, dilation=dilation, num_global_tokens=3, position="rotary")
    x = np.random.default_rng(0).normal(size=(2, 40, 8)).astype("float32")
    whole = np.asarray(layer(x, x, use_causal_mask=True))
    cache, index = layer.init_cache(2, max_length=1000), 0
    assert cache["recent_keys"].shape[1] == (2 if dilation == 1 else 6)
    for size in (2, 17, 1, 1, 19):
        part = x[:, index : index + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(index))
        np.testing.assert_allclose(output, whole[:, index : index + size], atol=1e-5)
        index += size


def test_what_it_cannot_do_is_refused():
    x = np.zeros((1, 4, 8), "float32")
    with pytest.raises(ValueError, match="even"):
        LongformerAttention(2, 4, attention_window=3)
    with pytest.raises(ValueError, match="each of the 2 heads"):
        LongformerAttention(2, 4, dilation=[1, 2, 3])
    with pytest.raises(ValueError, match="max_global_tokens"):
        LongformerAttention(2, 4)(x, x, global_mask=np.ones((1, 4), bool))
    with pytest.raises(ValueError, match="'bias'"):
        LongformerAttention(2, 4, dilation=[1, 2], position="alibi")(x, x)
