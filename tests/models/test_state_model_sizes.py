"""Parameters of the named sizes of RetNet, RWKV and S4: a formula that counts our models, against the published figures."""

import pytest

from keras_transformer import models, tasks
from keras_transformer.models.recurrent import retnet, rwkv, s4

SMALL = [models.Size(2, 16, 2, 24), models.Size(3, 24, 3, 40)]
GPT_VOCABULARY = 50257
PILE_VOCABULARY = 50277
WIKITEXT_VOCABULARY = 267735


def retnet_parameters(size, vocabulary_size, value_dim):
    """Embedding; q, k, and v, gate, output; three matrices of the feed-forward; two norms a block, and one at the end."""
    layers, width, heads, inner = size
    block = 2 * width**2 + 3 * width * heads * value_dim + 3 * width * inner + 2 * width
    return vocabulary_size * width + layers * block + width


def rwkv_parameters(size, vocabulary_size):
    """The paper's count, `2 V D + 13 D² L + D (11 L + 4)` (section 4), for any width of the channel mixing."""
    layers, width, _, inner = size
    block = 5 * width**2 + 2 * width * inner + 11 * width
    return 2 * vocabulary_size * width + layers * block + 4 * width


def s4_block_parameters(size, num_mixers, state_dim=64):
    """Rates, rank-one vectors, inputs and outputs, step and skip, GLU, norm of each S4; feed-forward and its norm."""
    _, width, _, inner = size
    mixer = 4 * state_dim * width + 2 * width + 2 * (width**2 + width) + 2 * width
    return num_mixers * mixer + 2 * width * inner + inner + width + 2 * width


@pytest.mark.parametrize("size", SMALL)
def test_the_formulas_count_our_models(size):
    assert models.RetNet(size, 50).count_params() == retnet_parameters(size, 50, 2 * size.hidden_dim // size.num_heads)
    assert models.RetNet(size, 50, value_dim=7).count_params() == retnet_parameters(size, 50, 7)
    model = tasks.LanguageModel(models.RWKV(size, 50), tie_embeddings=False)
    assert model.count_params() == rwkv_parameters(size, 50)
    for num_mixers in (1, 2):
        ends = 50 * size.hidden_dim + 2 * size.hidden_dim
        expected = ends + size.num_layers * s4_block_parameters(size, num_mixers)
        assert models.S4Model(size, 50, num_mixers=num_mixers).count_params() == expected


@pytest.mark.parametrize("name", retnet.SIZES)
def test_retnet_has_the_parameters_of_its_name(name):
    """Sun et al., section 3.1: as many as a Transformer of this width and depth, 12 D² in a block."""
    size = retnet.SIZES[name]
    value_dim = size.intermediate_dim // size.num_heads
    assert round(retnet_parameters(size, GPT_VOCABULARY, value_dim) / 1e9, 1) == float(name[:-1])
    block = (retnet_parameters(size, 0, value_dim) - size.hidden_dim) / size.num_layers
    assert block / (12 * size.hidden_dim**2) == pytest.approx(1, abs=0.011)
    assert size.hidden_dim // size.num_heads == 256


def test_a_named_retnet_has_values_as_wide_as_the_authors_have(monkeypatch):
    monkeypatch.setitem(retnet.SIZES, "1.3B", models.Size(1, 16, 2, 28))
    layer = models.RetNet("1.3B", 50).get_layer("decoder_block_0").mixer
    assert (layer.key_dim, layer.value_dim) == (8, 14)
    assert models.RetNet("1.3B", 50, value_dim=6).get_layer("decoder_block_0").mixer.value_dim == 6


# Peng et al., arXiv 2305.13048, section 4.
RWKV_PARAMETERS = {
    "169M": 1.693e8,
    "430M": 4.304e8,
    "1.5B": 1.515e9,
    "3B": 2.985e9,
    "7B": 7.393e9,
    "14B": 1.415e10,
}


@pytest.mark.parametrize("name", rwkv.SIZES)
def test_rwkv_has_the_parameters_of_the_paper(name):
    assert f"{rwkv_parameters(rwkv.SIZES[name], PILE_VOCABULARY):.3e}" == f"{RWKV_PARAMETERS[name]:.3e}"


def test_s4_has_the_parameters_of_the_paper():
    """249 million with adaptive embeddings (Gu et al., section 4.3), whose bands are those of the authors' settings."""
    size, bounds = s4.SIZES["wikitext"], (0, 20_000, 40_000, 200_000, WIKITEXT_VOCABULARY)
    embeddings = 0
    for band, (first, last) in enumerate(zip(bounds, bounds[1:], strict=False)):
        width = size.hidden_dim // 4**band
        embeddings += (last - first) * width + width * size.hidden_dim * (band > 0)
    blocks = size.num_layers * s4_block_parameters(size, s4.NUM_MIXERS["wikitext"])
    assert (blocks + embeddings) / 249e6 == pytest.approx(1, abs=0.01)


def test_two_state_spaces_stand_in_a_block_of_the_named_size(monkeypatch):
    monkeypatch.setitem(s4.SIZES, "wikitext", models.Size(2, 8, 1, 16))
    named = [layer.name for layer in models.S4Model("wikitext", 20).layers if "block" in layer.name]
    assert named == ["mixer_block_0_0", "decoder_block_0", "mixer_block_1_0", "decoder_block_1"]
    with pytest.raises(ValueError, match="num_mixers"):
        models.S4Model((2, 8, 1, 16), 20, num_mixers=0)
