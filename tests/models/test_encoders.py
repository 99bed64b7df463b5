"""Encoders of other projects: published parameter counts, and the options of `Encoder` that they are made of."""

import math

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import load_model, models
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.blocks import Residual
from keras_transformer.checkpoints.transfers import weights_of

SMALL = models.Size(num_layers=3, hidden_dim=16, num_heads=4, intermediate_dim=24)


def pooler(width):
    """What transformers' bare model holds beside: BERT's pooler."""
    return width * width + width


# As transformers counts its bare models.
PARAMETERS = {
    "minilm-l6": (lambda: models.BERT(models.Size(6, 384, 12, 1536)), pooler(384), 22_713_216),
    "roberta-base": (lambda: models.RoBERTa("base"), pooler(768), 124_645_632),
    "camembert-base": (lambda: models.RoBERTa("base", 32005), pooler(768), 110_621_952),
    "xlm-roberta-large": (lambda: models.RoBERTa("large", 250002), pooler(1024), 559_890_432),
    "distilbert-base": (models.DistilBERT, 0, 66_362_880),
    "electra-small": (lambda: models.ELECTRA("small"), 0, 13_483_008),
    "electra-large": (lambda: models.ELECTRA("large"), 0, 334_092_288),
    "albert-base": (models.ALBERT, pooler(768), 11_683_584),
    "albert-xlarge": (lambda: models.ALBERT("xlarge"), pooler(2048), 58_724_864),
    "albert-xxlarge": (lambda: models.ALBERT("xxlarge"), pooler(4096), 222_595_584),
    "modernbert-base": (models.ModernBERT, 0, 149_014_272),
    "layoutlm-base": (models.LayoutLM, pooler(768), 112_627_968),
    "mpnet-base": (lambda: models.MPNet("base", max_sequence_length=512), pooler(768), 109_486_464),
    "deberta-v3-xsmall": (lambda: models.DeBERTa("xsmall"), 0, 70_682_112),
    "deberta-v3-small": (lambda: models.DeBERTa("small"), 0, 141_304_320),
    "deberta-v3-base": (models.DeBERTa, 0, 183_831_552),
    "deberta-v3-large": (lambda: models.DeBERTa("large"), 0, 434_012_160),
    "deberta-v2-xlarge": (lambda: models.DeBERTa("xlarge"), 0, 884_593_152),
    "deberta-v2-xxlarge": (lambda: models.DeBERTa("xxlarge"), 0, 1_564_549_632),
    "longformer-base": (models.Longformer, pooler(768), 148_659_456),
}


@pytest.mark.parametrize(
    "name", exhaustive_but(PARAMETERS, "distilbert-base", "albert-base", "modernbert-base", "deberta-v3-xsmall")
)
def test_published_parameters(name):
    make, more, expected = PARAMETERS[name]
    with unallocated():
        assert sum(math.prod(weight.shape) for weight in weights_of(make())) + more == expected


def tokens(length=9, seed=0):
    ids = np.random.default_rng(seed).integers(1, 20, (2, length)).astype("int32")
    return {"token_ids": ids, "padding_mask": np.ones((2, length), bool)}


def shaken(model):
    for variable in model.trainable_variables:
        variable.assign(variable + 0.1 * keras.random.normal(variable.shape))
    return model


def test_one_segment_is_a_vector_for_every_token_and_no_input():
    model = shaken(models.Encoder(SMALL, 20, num_segments=1))
    assert sorted(model.input) == ["padding_mask", "token_ids"]
    before = np.asarray(model(tokens()))
    table = model.get_layer("token_embedding").embeddings
    segment = model.get_layer("segment_embedding").embeddings
    table.assign(table + segment)
    segment.assign(np.zeros_like(segment))
    np.testing.assert_allclose(model(tokens()), before, atol=1e-5)


def test_roberta_positions_begin_behind_padding():
    model = shaken(models.RoBERTa(SMALL, 20, max_sequence_length=9, padding_id=3))
    table = model.get_layer("position_embedding").embeddings
    assert table.shape == (13, 16)
    before = np.asarray(model(tokens()))
    table.assign(np.concatenate([np.zeros((4, 16)), np.asarray(table)[4:]]))
    np.testing.assert_array_equal(model(tokens()), before)
    table.assign(np.asarray(table) + np.outer(np.eye(13)[4], np.arange(16)))
    assert np.abs(np.asarray(model(tokens())) - before).max() > 1e-3


def test_blocks_take_attentions_in_turn():
    model = models.ModernBERT(SMALL._replace(num_layers=5), 20, local_window=3)
    windows = [getattr(block.mixer.mechanism, "window", None) for block in _blocks(model)]
    assert windows == [None, 3, 3, None, 3]
    assert [block.mixer.position.max_wavelength for block in _blocks(model)[:2]] == [160000.0, 10000.0]


def test_a_token_beyond_all_windows_is_not_seen_by_local_blocks():
    model = shaken(models.ModernBERT(SMALL, 20, local_window=2, is_local=(True,)))
    inputs = tokens()
    before = np.asarray(model(inputs))
    inputs["token_ids"][:, 8] = 0
    change = np.abs(np.asarray(model(inputs)) - before).max(axis=(0, 2))
    # Three blocks, each of which reaches one place further.
    assert (change[:5] == 0).all()
    assert (change[5:] > 0).all()


def test_the_first_attention_has_a_residual_scheme_of_its_own(tmp_path):
    options = {"position": None, "embedding_norm": True, "first_residual": Residual()}
    model = shaken(models.Encoder(SMALL, 20, **options))
    first, second, _ = _blocks(model)
    assert [weight.path for weight in first.mixer_residual.weights] == []
    assert len(second.mixer_residual.weights) == len(first.feedforward_residual.weights) == 2
    embedded = keras.Model(model.input, model.get_layer("embedding_norm").output)(tokens())
    x = embedded + first.mixer(embedded, embedded)
    x = x + first.feedforward(first.feedforward_residual.norms["norm"](x))
    np.testing.assert_allclose(first(embedded), x, atol=1e-5)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(tokens()), model(tokens()))


def test_embeddings_of_another_width_are_projected_after_their_norm():
    model = shaken(models.ALBERT(SMALL, 20, embedding_dim=6))
    assert model.get_layer("token_embedding").embeddings.shape == (20, 6)
    assert model.get_layer("embedding_norm").gamma.shape == (6,)
    layers = [layer.name for layer in model.layers]
    assert layers.index("embedding_norm") < layers.index("embedding_projection")
    assert len(_blocks(model)) == 1


def test_electra_projects_where_the_widths_differ():
    names = {
        size: {layer.name for layer in models.ELECTRA(size, 20, embedding_dim=width).layers}
        for size, width in ((SMALL, 16), (SMALL._replace(num_layers=1), None))
    }
    assert ["embedding_projection" in found for found in names.values()] == [True, False]


def test_a_global_token_is_seen_from_everywhere():
    model = shaken(models.Longformer(SMALL._replace(num_layers=1), 20, attention_window=2, max_sequence_length=9))
    change = {}
    for is_global in (False, True):
        inputs = tokens() | {"global_mask": np.zeros((2, 9), bool)}
        inputs["global_mask"][:, 8] = is_global
        before = np.asarray(model(inputs))
        inputs["token_ids"][:, 8] = (inputs["token_ids"][:, 8] + 1) % 20
        change[is_global] = np.abs(np.asarray(model(inputs)) - before).max(axis=(0, 2))
    assert (change[False][:7] == 0).all()
    assert (change[True] > 0).all()


def _blocks(model):
    return [layer for layer in model.layers if layer.name.startswith("encoder_block")]
