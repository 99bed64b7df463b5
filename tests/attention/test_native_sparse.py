"""Native sparse attention against the equations of its paper in float64, its cache, its gradients and its cost."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, NativeSparseAttention
from keras_transformer.attention.layers import native_sparse
from keras_transformer.models import Decoder, Size
from keras_transformer.positions import Rotary
from keras_transformer.tasks import LanguageModel

WIDTH, HEADS, KEY_HEADS, KEY, VALUE = 10, 6, 2, 4, 3
SIZES = {
    "compression_length": 6,
    "compression_stride": 2,
    "block_size": 4,
    "num_blocks": 4,
    "num_local_blocks": 2,
    "window": 5,
}


def made(seed=0, **options):
    layer = NativeSparseAttention(HEADS, KEY, VALUE, KEY_HEADS, **{**SIZES, "position": Rotary(50.0), **options})
    layer.build((None, None, WIDTH))
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(rng.normal(0.1, 0.4, weight.shape))
    return layer


def tokens(length=37, batch_size=2, seed=1):
    return np.random.default_rng(seed).normal(size=(batch_size, length, WIDTH)).astype("float32")


def turned(x, positions):
    """Rotates adjacent pairs of `(T, N, H)`."""
    angles = np.asarray(positions)[:, None] * 50.0 ** -(np.arange(0, KEY, 2) / KEY)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def attended(query, keys, values):
    """Softmax attention of one query `(G, H)` to keys `(S, H)`: the context `(G, H_value)` and the weights `(G, S)`."""
    if not len(keys):
        return np.zeros((len(query), values.shape[-1])), np.zeros((len(query), 0))
    scores = query @ keys.T / np.sqrt(KEY)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ values, weights


def compressed(of, kind, x, positions):
    """Equation 7: one vector of each whole block, `(C, K, W)`."""
    length, stride = SIZES["compression_length"], SIZES["compression_stride"]
    rows = []
    for start in range(0, len(x) - length + 1, stride):
        block = x[start : start + length] + of[f"{kind}_compression/encoding"][:, None]
        flat = block.transpose(1, 0, 2).reshape(x.shape[1], -1)
        hidden = flat @ of[f"{kind}_compression/hidden/kernel"] + of[f"{kind}_compression/hidden/bias"]
        hidden = hidden / (1 + np.exp(-hidden))
        row = hidden @ of[f"{kind}_compression/output/kernel"] + of[f"{kind}_compression/output/bias"]
        rows.append(turned(row[None], [positions[start + length - 1]])[0] if kind == "key" else row)
    return np.array(rows).reshape(-1, x.shape[1], x.shape[2])


def selected_blocks(weights, t):
    """Equations 9 to 11 for the weights `(G, C)` of a group at token t, with blocks counted from 0."""
    size, stride = SIZES["block_size"], SIZES["compression_stride"]
    importance = np.zeros(t // size + 1)
    for j in range(len(importance)):
        for m in range(size // stride):
            for n in range(SIZES["compression_length"] // stride):
                i = (size // stride) * j + m - n
                importance[j] += weights[:, i].sum() if 0 <= i < weights.shape[1] else 0.0
    always = {0, *range(max(0, t // size - SIZES["num_local_blocks"] + 1), t // size + 1)}
    others = sorted(set(range(len(importance))) - always, key=lambda j: -importance[j])
    return sorted([*always, *others[: SIZES["num_blocks"] - len(always)]])


def formula(layer, x):
    """Equations 5 to 12 of arXiv 2502.11089 for one sequence `(T, D)`, token by token, in float64."""
    of = {weight.path.partition("/")[2]: np.asarray(weight, "float64") for weight in layer.weights}
    x, places = x.astype("float64"), np.arange(len(x))
    sets = {name: np.einsum("td,dnh->tnh", x, of[f"{name}/kernel"]) for name in ("query", "gate")}
    for branch in ("compressed", "selected", "window"):
        for kind in ("key", "value"):
            sets[f"{branch}_{kind}"] = np.einsum("td,dnh->tnh", x, of[f"{branch}_{kind}/kernel"])
    query, gates = turned(sets["query"], places), 1 / (1 + np.exp(-sets["gate"]))
    keys = {name: turned(sets[f"{name}_key"], places) for name in ("selected", "window")}
    blocks = [compressed(of, kind, sets[f"compressed_{kind}"], places) for kind in ("key", "value")]
    context, group = np.zeros((len(x), HEADS, VALUE)), HEADS // KEY_HEADS
    for t in range(len(x)):
        count = max(0, (t + 1 - SIZES["compression_length"]) // SIZES["compression_stride"] + 1)
        for head in range(KEY_HEADS):
            mine = slice(head * group, (head + 1) * group)
            first, weights = attended(query[t, mine], blocks[0][:count, head], blocks[1][:count, head])
            size = SIZES["block_size"]
            ids = [s for j in selected_blocks(weights, t) for s in range(j * size, min((j + 1) * size, t + 1))]
            second, _ = attended(query[t, mine], keys["selected"][ids, head], sets["selected_value"][ids, head])
            near = slice(max(0, t + 1 - SIZES["window"]), t + 1)
            third, _ = attended(query[t, mine], keys["window"][near, head], sets["window_value"][near, head])
            parts = np.stack([first, second, third], axis=1)
            context[t, mine] = np.einsum("gc,gch->gh", gates[t, mine], parts)
    return np.einsum("tnh,nhd->td", context, of["attention_output/kernel"])


def in_steps(layer, x, sizes, max_length=41, **options):
    cache, outputs, start = layer.init_cache(len(x), max_length), [], 0
    for size in sizes:
        part = x[:, start : start + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(start), **options)
        outputs.append(np.asarray(output))
        start += size
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("tile", [64, 8])
def test_equations_of_the_paper(monkeypatch, tile):
    monkeypatch.setattr(native_sparse, "_TILE", tile)
    layer, x = made(), tokens()
    found = np.asarray(layer(x, x))
    expected = np.stack([formula(layer, row) for row in x])
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("sizes", [[1] * 37, [5, 1, 9, 22], [30, 3, 1, 3]])
def test_steps_equal_the_equations(sizes):
    layer, x = made(), tokens()
    expected = np.stack([formula(layer, row) for row in x])
    np.testing.assert_allclose(in_steps(layer, x, sizes), expected, atol=2e-6 * np.abs(expected).max())


def test_masked_tokens_have_no_influence_in_any_form():
    """Masked at the start and in the middle: compressed blocks that contain them do not see them either."""
    layer, x = made(), tokens()
    mask = np.ones((2, 37), bool)
    mask[0, :9] = mask[1, 13:16] = False
    changed = x + np.where(mask, 0, 5.0).astype("float32")[..., None]
    whole = np.asarray(layer(x, x, value_mask=mask))[mask]
    np.testing.assert_allclose(np.asarray(layer(changed, changed, value_mask=mask))[mask], whole, atol=1e-6)
    slots = np.concatenate([mask, np.ones((2, 4), bool)], axis=1)
    stepped = in_steps(layer, changed, [20, 1, 1, 15], value_mask=slots)[mask]
    np.testing.assert_allclose(stepped, whole, atol=1e-5)
    assert np.abs(np.asarray(layer(x, x))[mask] - whole).max() > 1e-2


def test_an_earlier_index_overwrites_later_tokens():
    layer, x = made(), tokens()
    _, cache = layer(x, x, cache=layer.init_cache(2, 41), cache_index=0)
    other = tokens(seed=5)[:, :6]
    output, _ = layer(other, other, cache=cache, cache_index=np.array([20, 11], "int32"))
    for row, start in enumerate((20, 11)):
        joined = np.concatenate([x[row, :start], other[row]])[None]
        np.testing.assert_allclose(output[row], np.asarray(layer(joined, joined))[0, start:], atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="takes gradients by a tape")
def test_gradients_of_tiles_equal_those_of_one_piece(monkeypatch):
    import tensorflow as tf

    layer, x, found = made(), tf.constant(tokens()), []
    for tile in (64, 8):
        monkeypatch.setattr(native_sparse, "_TILE", tile)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(layer(x, x)))
        found.append(tape.gradient(loss, [x, *(weight.value for weight in layer.trainable_weights)]))
    for one, tiled in zip(*found, strict=True):
        scale = np.abs(np.asarray(one)).max()
        assert scale > 1e-3
        np.testing.assert_allclose(tiled, one, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts operations of TensorFlow's graph")
def test_operations_and_memory_are_far_below_those_of_full_attention():
    from graph_cost import layer_costs

    sizes = {"compression_length": 32, "compression_stride": 16, "block_size": 32, "num_blocks": 4, "window": 128}
    sparse = NativeSparseAttention(8, 16, num_key_value_heads=2, **sizes)
    full = MultiHeadAttention(8, 16, num_key_value_heads=2, position="rotary")
    costs = [layer_costs(layer, (1, 4096, 16), use_causal_mask=True) for layer in (sparse, full)]
    for each, operations in (("forward", 5), ("gradient", 3)):
        assert operations * costs[0][each].flops < costs[1][each].flops
        assert 20 * costs[0][each].largest < costs[1][each].largest


@pytest.mark.exhaustive
def test_a_decoder_generates_what_it_computes_whole():
    attention = NativeSparseAttention(4, 6, num_key_value_heads=2, **SIZES)
    model = LanguageModel(Decoder(Size(2, 20, 4, 24), 30, position=None, attention=attention), end_id=0)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.name in ("kernel", "embeddings"):
            weight.assign(rng.normal(0, 0.7, weight.shape))
    model.compile("sgd", jit_compile=False)
    prompts = [list(range(1, 20)), [7, 3, 9], [5, 5, 5, 8, 2, 1, 9, 11]]
    texts = model.generate(prompts, max_new_tokens=8)
    for prompt, new in zip(prompts, texts, strict=True):
        ids = np.array([prompt + new], "int32")
        logits = np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))[0]
        assert np.argmax(logits[len(prompt) - 1 : -1], axis=-1).tolist() == new
    assert len({tuple(new) for new in texts}) == 3


@pytest.mark.parametrize(
    "options, message",
    [
        ({"compression_length": 5}, "compression_length must be a multiple"),
        ({"block_size": 5}, "block_size must be a multiple"),
        ({"num_blocks": 2}, "num_blocks counts"),
        ({"position": "alibi"}, "only rotate"),
    ],
)
def test_wrong_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)
