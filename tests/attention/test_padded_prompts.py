"""The outputs of padding in a prompt do not depend on whether its length is known while the graph is traced."""

import numpy as np
import pytest

from keras_transformer.attention import ChunkedAttention, DilatedAttention, LocalAttention, Visibility

MECHANISMS = {
    "local": lambda: LocalAttention(7),
    "dilated": lambda: DilatedAttention(window=7, dilation=2),
    "chunked": lambda: ChunkedAttention(7),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_both_ways_to_read_a_short_prompt_agree_on_padding(name):
    mechanism, random = MECHANISMS[name](), np.random.default_rng(0)
    query = random.normal(size=(3, 7, 4, 8)).astype("float32")
    key, value = random.normal(size=(2, 3, 7, 2, 8)).astype("float32")
    slots = np.arange(7, dtype="int32")
    mask = slots < np.array([[7], [5], [3]])
    visibility = Visibility.from_slots(slots[None].repeat(3, 0), slots, causal=True, query_mask=mask)
    outputs = []
    for is_short in (True, False):
        mechanism._is_short = lambda query, is_short=is_short: is_short
        cache = mechanism.init_cache(3, 16, 2, 8, 8, "float32")
        outputs.append(np.asarray(mechanism.extend(query, key, value, cache, np.zeros(3, "int32"), visibility)[0]))
    np.testing.assert_allclose(*outputs, atol=1e-5)
    assert np.abs(outputs[0][~mask]).min(axis=-1).max() > 0
