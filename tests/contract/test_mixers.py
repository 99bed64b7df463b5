"""Masks and caches of every mechanism, mixer, scoring function, position and recurrence."""

import functools

import keras
import numpy as np
import pytest

import cases
from keras_transformer.attention import MultiHeadAttention, length_mask
from keras_transformer.recurrence import Recurrence
from laws import as_float32, built, check_pieces, randomize

MAX_LENGTH = 9


@functools.cache
def _layer_of(name):
    return randomize(built(cases.MIXERS[name]))


@pytest.fixture
def layer(mixer_name):
    """A layer that the tests share: none changes it."""
    return _layer_of(mixer_name)


def attend(layer, x, **options):
    """Self-attention, causal if the mechanism supports no other."""
    options.setdefault("use_causal_mask", "bidirectional" not in layer.supports)
    return np.asarray(layer(x, x, **options))


def output_of_nothing(layer):
    """The output of a zero context."""
    bias = layer.output_dense.bias
    return np.zeros(cases.WIDTH) if bias is None else np.asarray(bias)


def needs(layer, what):
    """Skips the test if the layer does not support an option; `test_unsupported_options_raise` tests the error."""
    if what not in layer.supports:
        pytest.skip(f"{type(layer).__name__} does not support {what}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", ["causal", "bidirectional", "cross", "attention_mask", "window", "scores", "cache"])
def test_unsupported_options_raise(mixer_case, what):
    layer = built(mixer_case)
    if what in layer.supports:
        pytest.skip("supported")
    x, causal = cases.tokens(), "bidirectional" not in layer.supports
    if what == "window":
        if not isinstance(layer, MultiHeadAttention):
            pytest.skip("only `MultiHeadAttention` has this argument")
        layer._sliding_window = 3
    options = {
        "causal": {"use_causal_mask": True},
        "bidirectional": {"use_causal_mask": False},
        "attention_mask": {"attention_mask": np.ones((cases.LENGTH, cases.LENGTH), bool)},
        "scores": {"return_attention_scores": True},
        "cache": {"cache": {"key": np.zeros((2, 4, 9, 6)), "value": np.zeros((2, 4, 9, 6))}, "cache_index": 0},
    }.get(what, {})
    value = cases.tokens(length=5) if what == "cross" else x
    with pytest.raises(ValueError, match=f"does not support '{what}'"):
        layer(x, value, **{"use_causal_mask": causal, **options})


def test_masked_tokens_have_no_influence(layer):
    x, changed = cases.tokens(), cases.tokens()
    changed[:, 5:] += 3.0
    mask = np.asarray(length_mask([5, 5], cases.LENGTH))
    masks = {"query_mask": mask, "value_mask": mask}
    np.testing.assert_allclose(attend(layer, x, **masks)[:, :5], attend(layer, changed, **masks)[:, :5], atol=1e-6)
    if "bidirectional" in layer.supports:
        assert np.abs(attend(layer, x) - attend(layer, changed))[:, :5].max() > 1e-3


def test_attention_mask_blocks_one_pair(layer):
    """Query 2 must not attend to key 4: a change of token 4 changes every query except query 2."""
    needs(layer, "attention_mask")
    x, changed = cases.tokens(), cases.tokens()
    changed[:, 4] += 3.0
    query = x if "cross" in layer.supports else changed  # Self-attention only: queries and keys change together.
    mask = np.ones((cases.LENGTH, cases.LENGTH), bool)
    mask[2, 4] = False
    for shaped in (mask, np.stack([mask, mask]), np.broadcast_to(mask, (2, 4, *mask.shape))):
        before, after = layer(x, x, attention_mask=shaped), layer(query, changed, attention_mask=shaped)
        moved = np.abs(np.asarray(before) - np.asarray(after)).max(axis=(0, 2))
        assert moved[2] == 0
        assert np.all(np.delete(moved, 2) > 1e-4)


def test_padding_changes_nothing(layer):
    x = cases.tokens()
    padded = np.concatenate([x, np.full((2, 3, cases.WIDTH), 7.0, "float32")], axis=1)
    mask = length_mask([cases.LENGTH] * 2, cases.LENGTH + 3)
    output, expected = attend(layer, padded, query_mask=mask, value_mask=mask)[:, : cases.LENGTH], attend(layer, x)
    # Sums of another length are rounded in another order.
    np.testing.assert_allclose(output, expected, atol=2e-6 * max(1.0, np.abs(expected).max()))


def test_causality(layer):
    needs(layer, "causal")
    x, changed = cases.tokens(), cases.tokens()
    changed[:, 4:] += 3.0
    before, after = layer(x, x, use_causal_mask=True), layer(changed, changed, use_causal_mask=True)
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert np.abs(np.asarray(before)[:, 4:] - np.asarray(after)[:, 4:]).max() > 1e-3


def test_row_of_padding_only_gives_zeros(layer):
    x, mask = cases.tokens(), np.ones((2, cases.LENGTH), bool)
    mask[1] = False
    output = attend(layer, x, query_mask=mask, value_mask=mask)
    # A mixer with a state returns zeros at padding; attention returns the output of a zero context.
    nothing = np.zeros(cases.WIDTH) if isinstance(layer, Recurrence) else output_of_nothing(layer)
    np.testing.assert_allclose(output[1], np.tile(nothing, (cases.LENGTH, 1)), atol=1e-6)
    np.testing.assert_allclose(output[0], attend(layer, x)[0], atol=1e-6)
    assert np.abs(output[0, 2] - nothing).max() > 1e-3


def test_query_without_visible_keys_gives_zeros(layer):
    needs(layer, "attention_mask")
    x = cases.tokens()
    mask = np.ones((2, cases.LENGTH, cases.LENGTH), bool)
    mask[:, 3] = False
    mask[1] = False
    output = layer(x, x, attention_mask=mask)
    nothing = output_of_nothing(layer)
    np.testing.assert_allclose(np.asarray(output)[0, 3], nothing, atol=1e-6)
    np.testing.assert_allclose(np.asarray(output)[1], np.tile(nothing, (cases.LENGTH, 1)), atol=1e-6)
    assert np.abs(np.asarray(output)[0, 2] - nothing).max() > 1e-3
    if "scores" in layer.supports:
        _, scores = layer(x, x, attention_mask=mask, return_attention_scores=True)
        np.testing.assert_array_equal(np.asarray(scores)[:, :, 3], 0)
        np.testing.assert_array_equal(np.asarray(scores)[1], 0)


def test_scores_sum_to_one(layer):
    needs(layer, "scores")
    x = cases.tokens()
    _, scores = layer(x, x, use_causal_mask=True, return_attention_scores=True)
    assert scores.shape == (2, 4, cases.LENGTH, cases.LENGTH)
    np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-5)
    np.testing.assert_array_equal(np.triu(np.asarray(scores)[0, 0], 1), 0)


@pytest.mark.parametrize(
    "chunks", [[4, 1, 2], *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ([1] * 7, [7], [2, 5]))]
)
def test_full_pass_equals_chunks_and_steps(layer, chunks):
    needs(layer, "cache")
    check_pieces(layer, cases.tokens(), chunks, MAX_LENGTH)


def test_ragged_batch_equals_single_rows(layer):
    """Prompts of 3 and 5 tokens in one padded batch, then two more tokens each, at the cache index of each row."""
    needs(layer, "cache")
    lengths = [3, 5]
    x = cases.tokens(length=8)
    prompt = x[:, :5].copy()
    prompt[0, 3:] = 99.0  # Padding, on the right.
    # A cache of fixed size needs the mask of the padding; a rewindable cache overwrites it.
    mask = None if layer.cache_is_rewindable else np.asarray(length_mask(lengths, 5))
    cache = layer.init_cache(2, MAX_LENGTH)
    first, cache = layer(prompt, prompt, query_mask=mask, cache=cache, cache_index=0)
    new = np.stack([x[row, n : n + 2] for row, n in enumerate(lengths)])
    second, cache = layer(new, new, cache=cache, cache_index=np.array(lengths, "int32"))
    for row, n in enumerate(lengths):
        alone = layer(x[row : row + 1, : n + 2], x[row : row + 1, : n + 2], use_causal_mask=True)[0]
        np.testing.assert_allclose(first[row, :n], alone[:n], atol=1e-5)
        np.testing.assert_allclose(second[row], alone[n:], atol=1e-5)


def test_cache_is_not_mutated_and_keeps_its_shape(layer):
    needs(layer, "cache")
    x = cases.tokens()
    cache = layer.init_cache(2, MAX_LENGTH)
    _, following = layer(x, x, cache=cache, cache_index=0)
    assert all(np.all(np.asarray(slab) == 0) for slab in cache.values())
    assert {name: slab.shape for name, slab in following.items()} == {name: slab.shape for name, slab in cache.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_cache_in_mixed_precision(mixer_case, policy):
    """Its dtypes are those of `init_cache`; padding does not change it; steps equal the full pass."""
    layer = randomize(built_in(mixer_case, policy))
    needs(layer, "cache")
    x, nothing = cases.tokens(), np.zeros((2, 1), bool)
    for dtype in (None, "float32"):
        empty = layer.init_cache(2, MAX_LENGTH, dtype)
        _, cache = layer(x, x, cache=empty, cache_index=0)
        _, after = layer(x[:, :1], x[:, :1], query_mask=nothing, cache=cache, cache_index=cases.LENGTH)
        for name, slab in empty.items():
            assert cache[name].dtype == slab.dtype
            before, now = (as_float32(each[name]) for each in (cache, after))
            if layer.cache_is_rewindable:  # Padding is written behind the valid slots.
                before, now = before[:, :, : cases.LENGTH], now[:, :, : cases.LENGTH]
            np.testing.assert_array_equal(now, before)
    check_pieces(layer, x, [1, 4, 1, 1], MAX_LENGTH, atol=tolerance(policy))


def built_in(case, policy):
    """Returns a layer with this dtype policy, also in its sublayers."""
    keras.config.set_dtype_policy(policy)
    try:
        return built(case)
    finally:
        keras.config.set_dtype_policy("float32")


def tolerance(policy):
    """Several units in the last place of numbers near 2."""
    return (2**-8 if policy == "mixed_bfloat16" else 2**-11) * 24


def test_full_cache_raises(layer):
    needs(layer, "cache")
    x = cases.tokens()
    if not layer.cache_is_rewindable:  # A cache of fixed size is never full.
        sizes = ({name: slab.shape for name, slab in layer.init_cache(2, n).items()} for n in (100, 1000))
        assert next(sizes) == next(sizes)
        return
    with pytest.raises(ValueError, match="4 slots"):
        layer(x, x, cache=layer.init_cache(2, 4), cache_index=0)
    with pytest.raises(ValueError, match="do not fit"):
        layer(x, x, cache=layer.init_cache(2, MAX_LENGTH), cache_index=3)


def test_mask_of_wrong_length_raises(layer):
    needs(layer, "cache")
    x = cases.tokens()
    with pytest.raises(ValueError, match="slots" if layer.cache_is_rewindable else "query_mask"):
        layer(x, x, value_mask=np.ones((2, 7), bool), cache=layer.init_cache(2, MAX_LENGTH), cache_index=0)


@pytest.mark.exhaustive
def test_dynamic_batch_and_length(layer):
    """One graph for two batch sizes and lengths; outputs equal the eager ones."""
    symbolic, causal = keras.Input((None, cases.WIDTH)), "causal" in layer.supports
    model = keras.Model(symbolic, layer(symbolic, symbolic, use_causal_mask=causal))
    for batch_size, length in ((1, 4), (3, 7)):
        x = cases.tokens(batch_size, length)
        np.testing.assert_allclose(model.predict(x, verbose=0), layer(x, x, use_causal_mask=causal), atol=1e-5)
