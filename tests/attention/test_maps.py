import keras
import numpy as np
import pytest

from keras_transformer import load_model, models
from keras_transformer.attention import attention_maps


@pytest.fixture(scope="module")
def encoder():
    return models.Encoder(models.Size(3, 8, 2, 16), vocabulary_size=10)


@pytest.fixture(scope="module")
def inputs():
    mask = np.array([[True, True, True, True], [True, True, False, False]])
    return {"token_ids": np.array([[1, 2, 3, 4], [5, 6, 0, 0]]), "padding_mask": mask}


def test_maps_are_the_scores_that_the_layer_returns(encoder, inputs):
    """The first block's scores, computed from its parts by hand."""
    scores = attention_maps(encoder)(inputs)
    x = encoder.get_layer("position_embedding")(encoder.get_layer("token_embedding")(inputs["token_ids"]))
    block = encoder.get_layer("encoder_block_0")
    x = block.mixer_residual.pre(x)
    _, expected = block.mixer(x, x, value_mask=inputs["padding_mask"], return_attention_scores=True)
    np.testing.assert_allclose(scores["encoder_block_0/self_attention"], expected, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(expected)[1, :, :, 2:], 0)


def test_chosen_by_index_name_and_path(encoder):
    assert list(attention_maps(encoder, [-1]).chosen) == ["encoder_block_2/self_attention"]
    assert list(attention_maps(encoder, ["encoder_block_1"]).chosen) == ["encoder_block_1/self_attention"]
    assert len(attention_maps(encoder, ["self_attention"]).chosen) == 3


def test_blocks_keep_their_order_in_a_model_within_a_model(encoder, inputs):
    whole = keras.Model(encoder.input, encoder(encoder.input))
    maps = attention_maps(whole)
    assert [path.split("/")[-2] for path in maps.chosen] == [f"encoder_block_{index}" for index in range(3)]
    (last,) = attention_maps(whole, [-1])(inputs).values()
    np.testing.assert_array_equal(last, attention_maps(encoder)(inputs)["encoder_block_2/self_attention"])


def test_predict_in_batches(encoder, inputs):
    maps = attention_maps(encoder)
    predicted = maps.predict(inputs, batch_size=1, verbose=0)
    for path, scores in maps(inputs).items():
        np.testing.assert_allclose(predicted[path], scores, atol=1e-6)


def test_the_model_itself_is_left_as_it_was(encoder, inputs):
    before = np.asarray(encoder(inputs))
    attention_maps(encoder)(inputs)
    np.testing.assert_array_equal(encoder(inputs), before)


def test_unknown_layer_lists_those_there_are(encoder):
    with pytest.raises(ValueError, match="encoder_block_0/self_attention, encoder_block_1/self_attention"):
        attention_maps(encoder, ["no_such"])


def test_model_without_attention_is_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="plain")
    with pytest.raises(ValueError, match="'plain'"):
        attention_maps(model)


def test_a_loaded_model_has_the_same_maps(encoder, inputs, tmp_path):
    encoder.save(tmp_path / "model.keras")
    loaded = attention_maps(load_model(tmp_path / "model.keras"))(inputs)
    expected = attention_maps(encoder)(inputs)
    assert list(loaded) == list(expected)
    for path, scores in expected.items():
        np.testing.assert_array_equal(loaded[path], scores)
