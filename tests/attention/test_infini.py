"""Infini-attention against its equations, segment by segment in float64, and against the community's package."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.attention import InfiniAttention, MultiHeadAttention, Visibility, length_mask

DATA = Path(__file__).parents[1] / "data"
HEADS, KEY_HEADS, WIDTH = 4, 2, 6
UPDATES = ("linear", "delta")


def heads(length, batch_size=2, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(batch_size, length, count, WIDTH) for count in (HEADS, KEY_HEADS, KEY_HEADS)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def softmax_attention(query, key, value, mask):
    scores = np.where(mask[None, None], np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(WIDTH), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), value)


def sigma(x):
    return np.where(x > 0, x + 1, np.exp(x))


def formula(query, key, value, segment, update, gate, causal=True):
    """The paper's equations, one segment after the other; the softmax alone in the first."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    key, value = (np.repeat(x, HEADS // KEY_HEADS, axis=2) for x in (key, value))
    memory, total = np.zeros((len(query), HEADS, WIDTH, WIDTH)), np.zeros((len(query), HEADS, WIDTH))
    outputs, gate = [], 1 / (1 + np.exp(-gate.astype("float64")))[:, None]
    for start in range(0, query.shape[1], segment):
        q, k, v = (x[:, start : start + segment] for x in (query, key, value))
        mask = np.tri(q.shape[1], dtype=bool) if causal else np.ones((q.shape[1],) * 2, bool)
        local = softmax_attention(q, k, v, mask)
        q, k = sigma(q), sigma(k)
        if start:
            read = np.einsum("btnm,bnmh->btnh", q, memory) / np.einsum("btnm,bnm->btn", q, total)[..., None]
            local = gate * read + (1 - gate) * local
            if update == "delta":
                v = v - np.einsum("btnm,bnmh->btnh", k, memory) / np.einsum("btnm,bnm->btn", k, total)[..., None]
        outputs.append(local)
        memory = memory + np.einsum("btnm,btnh->bnmh", k, v)
        total = total + k.sum(axis=1)
    return np.concatenate(outputs, axis=1), memory, total


def mechanism(segment, update, seed=3):
    layer = InfiniAttention(segment, update)
    layer.build((2, 8, HEADS, WIDTH), (2, 8, KEY_HEADS, WIDTH), (2, 8, KEY_HEADS, WIDTH))
    layer.gate.assign(np.random.default_rng(seed).normal(size=HEADS))
    return layer


def causal(*operands, **options):
    slots = np.arange(operands[0].shape[1], dtype="int32")
    return {"visibility": Visibility.from_slots(slots, slots, causal=True, **options)}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("length, segment", [(1, 4), (4, 4), (9, 4), (23, 1), (64, 7), (300, 64), (300, 7)])
def test_equations(length, segment, update):
    operands, layer = heads(length), mechanism(segment, update)
    gate = np.asarray(layer.gate)
    expected, _, _ = formula(*operands, segment, update, gate)
    np.testing.assert_allclose(layer(*operands, **causal(*operands)), expected, atol=1e-5)
    expected, _, _ = formula(*operands, segment, update, gate, causal=False)
    np.testing.assert_allclose(layer(*operands), expected, atol=1e-5)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("sizes", [[1] * 70, [7] * 10, [64, 6], [5, 1, 3, 61], [69, 1]], ids=str)
def test_pieces_of_any_size_are_the_equations_and_leave_the_memory(sizes, update):
    operands, layer, start, outputs = heads(70), mechanism(9, update), 0, []
    expected, _, _ = formula(*operands, 9, update, np.asarray(layer.gate))
    cache = layer.init_cache(2, 100, KEY_HEADS, WIDTH, WIDTH, "float32")
    for size in sizes:
        part = [x[:, start : start + size] for x in operands]
        slots = (start + np.arange(size, dtype="int32"))[None]
        visibility = Visibility(
            causal=True, query_slots=slots, key_slots=slots, query_positions=slots, key_positions=slots
        )
        output, cache = layer(*part, visibility=visibility, cache=cache, cache_index=np.int32(start))
        outputs.append(np.asarray(output))
        start += size
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), expected, atol=1e-5)
    _, *whole = formula(*operands, 9, update, np.asarray(layer.gate))
    _, *until_63 = formula(*(x[:, :63] for x in operands), 9, update, np.asarray(layer.gate))
    expected = {"memory": until_63, "pending": [x - y for x, y in zip(whole, until_63, strict=True)]}
    for name, (memory, total) in expected.items():
        np.testing.assert_allclose(np.asarray(cache[name])[..., :-1], memory[:, ::2], atol=2e-5)
        np.testing.assert_allclose(np.asarray(cache[name])[..., -1], total[:, ::2], atol=1e-4)


@pytest.mark.parametrize("update", UPDATES)
def test_padding_anywhere_adds_nothing(update):
    """What is masked weighs in neither softmax nor memory; rows with as much padding as tokens."""
    operands, layer = heads(30), mechanism(4, update)
    mask = np.random.default_rng(2).uniform(size=(2, 30)) > 0.5
    changed = [np.where(mask[..., None, None], x, 7.0) for x in operands]
    outputs = [np.asarray(layer(*each, **causal(*each, key_mask=mask))) for each in (operands, changed)]
    np.testing.assert_allclose(*outputs, atol=1e-5)
    np.testing.assert_array_equal(outputs[0][~mask], 0)
    assert np.abs(outputs[0] - np.asarray(layer(*operands, **causal(*operands))))[mask].max() > 1e-2


def reference():
    arrays = np.load(DATA / "infini_attention.npz")
    layer = MultiHeadAttention(2, 8, use_bias=False, mechanism=InfiniAttention(segment_length=8), position="rotary")
    x = arrays["inputs/x"]
    x = x / np.linalg.norm(x, axis=-1, keepdims=True) * 16**0.5 * arrays["params/norm.gamma"]
    layer.build(x.shape, x.shape)
    query, key, value = (each.T.reshape(16, 2, 8) for each in np.split(arrays["params/to_qkv.weight"], 3))
    output = arrays["params/to_out.weight"].T.reshape(2, 8, 16)
    gate = -arrays["params/fastweight_mem.head_gates"]  # There the share of the softmax, here that of the memory.
    put = {"query": query, "key": key, "value": value, "attention_output": output, "gate": gate}
    for weight in layer.weights:
        weight.assign(put["gate" if weight.name == "gate" else weight.path.split("/")[-2]])
    return layer, x, arrays


def test_outputs_and_memory_of_the_reference():
    layer, x, arrays = reference()
    expected = np.concatenate([arrays[f"outputs/y_{segment}"] for segment in range(3)], axis=1)
    np.testing.assert_allclose(layer(x, x, use_causal_mask=True), expected, atol=1e-5)
    cache = layer.init_cache(2, 24)
    for segment in range(3):
        part = x[:, segment * 8 : segment * 8 + 8]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(segment * 8))
        np.testing.assert_allclose(output, arrays[f"outputs/y_{segment}"], atol=1e-5)
        memory = np.asarray(cache["memory"])
        np.testing.assert_allclose(memory[..., :-1], arrays[f"outputs/mem_kv_{segment}"], atol=1e-5)
        np.testing.assert_allclose(memory[..., -1], arrays[f"outputs/mem_norm_{segment}"], atol=1e-5)
        np.testing.assert_array_equal(cache["pending"], 0)


@pytest.mark.parametrize("update", UPDATES)
def test_the_memory_knows_no_positions(update):
    """Counted from elsewhere, tokens give the same; turned queries and keys reach the softmax alone."""
    layer = MultiHeadAttention(2, 8, mechanism=InfiniAttention(4, update, gate_initializer="zeros"), position="rotary")
    plain = MultiHeadAttention(2, 8, mechanism=InfiniAttention(4, update, gate_initializer="zeros"))
    x = np.random.default_rng(0).normal(size=(2, 19, 16)).astype("float32")
    whole, _ = np.asarray(layer(x, x, use_causal_mask=True)), plain(x, x, use_causal_mask=True)
    moved = layer(x, x, use_causal_mask=True, positions=100 + np.arange(19, dtype="int32"))
    np.testing.assert_allclose(moved, whole, atol=1e-4)
    plain.set_weights(layer.get_weights())
    assert np.abs(np.asarray(plain(x, x, use_causal_mask=True)) - whole).max() > 1e-3
    for each in (layer, plain):
        each.mechanism.gate.assign(np.full(2, 50.0))  # The memory alone.
    read, same = (np.asarray(each(x, x, use_causal_mask=True))[:, 4:] for each in (layer, plain))
    np.testing.assert_allclose(read, same, atol=1e-6)


@pytest.mark.parametrize("update", UPDATES)
def test_ragged_rows_are_each_row_alone(update):
    """Prompts of 3, 8 and 13 tokens in one padded batch, then 6 tokens at once and 3 one by one, segments of 4."""
    layer = MultiHeadAttention(
        4, 6, num_key_value_heads=2, mechanism=InfiniAttention(4, update), position="relative_bias"
    )
    x, lengths = np.random.default_rng(0).normal(size=(3, 22, 12)).astype("float32"), np.array([3, 8, 13], "int32")
    layer.build(x.shape, x.shape)
    prompt, mask = x[:, :13], np.asarray(length_mask(lengths, 13))
    first, cache = layer(prompt, prompt, query_mask=mask, cache=layer.init_cache(3, 30), cache_index=0)
    pieces, index = [], lengths
    for size in (6, 1, 1, 1):
        new = np.stack([x[row, start : start + size] for row, start in enumerate(index)])
        output, cache = layer(new, new, cache=cache, cache_index=index)
        pieces.append(np.asarray(output))
        index = index + size
    later = np.concatenate(pieces, axis=1)
    for row, length in enumerate(lengths):
        alone = np.asarray(layer(x[row : row + 1, : length + 9], x[row : row + 1, : length + 9], use_causal_mask=True))[
            0
        ]
        np.testing.assert_allclose(np.asarray(first)[row, :length], alone[:length], atol=1e-5)
        np.testing.assert_allclose(later[row], alone[length:], atol=1e-5)


@pytest.mark.parametrize("update", UPDATES)
def test_a_hundred_thousand_tokens(update):
    """Finite, of one size, and equal to reading the whole."""
    layer = MultiHeadAttention(1, 4, mechanism=InfiniAttention(250, update))
    x = np.random.default_rng(0).normal(size=(1, 100_000, 4)).astype("float32")
    layer.build(x.shape, x.shape)
    cache, start = layer.init_cache(1, 100_000), 0
    shapes = {name: slab.shape for name, slab in cache.items()}
    for size in [20_000] * 4 + [19_997, 1, 1, 1]:
        part = x[:, start : start + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(start))
        start += size
        assert np.all(np.isfinite(np.asarray(output)))
    assert {name: slab.shape for name, slab in cache.items()} == shapes
    np.testing.assert_allclose(
        np.asarray(output)[:, 0], np.asarray(layer(x, x, use_causal_mask=True))[:, -1], atol=1e-4
    )


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow graphs")
def test_delta_grows_as_the_length_times_its_logarithm():
    from graph_cost import layer_costs

    def costs(length):
        layer = MultiHeadAttention(2, 8, mechanism=InfiniAttention(64, "delta"))
        return layer_costs(layer, (1, length, 16), use_causal_mask=True)

    short, long = costs(4096), costs(8192)
    for name in ("forward", "gradient"):
        assert long[name].largest <= 2.1 * short[name].largest
        assert long[name].flops <= 2.2 * short[name].flops


def test_an_unknown_update_is_refused():
    with pytest.raises(ValueError, match="'linear', 'delta'"):
        InfiniAttention(update="learned")
