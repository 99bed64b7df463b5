"""Blocks that share their weights: once in the model and in the file, and with a past in each place."""

import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.feedforward import MixtureOfExperts
from keras_transformer.utils.serialization import load_model

SIZE = models.Size(num_layers=5, hidden_dim=16, num_heads=2, intermediate_dim=32)


def made(maker, **options):
    model = maker(SIZE, 11, max_sequence_length=8, **options)
    for weight in model.trainable_weights:
        weight.assign(np.random.default_rng(len(weight.path)).normal(0.05, 0.3, weight.shape))
    return model


def inputs(length=6):
    ids = np.random.default_rng(1).integers(0, 11, (2, length)).astype("int32")
    return {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}


def blocks(model):
    return [layer for layer in model.layers if isinstance(layer, (EncoderBlock, DecoderBlock))]


@pytest.mark.parametrize("maker", [models.Encoder, models.Decoder])
@pytest.mark.parametrize("groups, places", [(1, [0] * 5), (2, [0, 0, 0, 1, 1]), (5, [0, 1, 2, 3, 4])])
def test_blocks_stand_in_their_places(maker, groups, places):
    model = made(maker, num_block_groups=groups)
    assert len(blocks(model)) == groups
    x = model.get_layer("position_embedding")(model.get_layer("token_embedding")(inputs()["token_ids"]))
    for index in places:
        x = blocks(model)[index](x)
    np.testing.assert_allclose(model(inputs()), model.get_layer("final_norm")(x), atol=1e-5)


@pytest.mark.parametrize("groups, places", [(None, [0, 1, 2, 3, 4, 5]), (1, [0, 1] * 3), (2, [0, 1, 0, 1, 2, 3])])
def test_groups_of_two_blocks(groups, places):
    size = SIZE._replace(num_layers=6)
    model = models.Encoder(size, 11, max_sequence_length=8, num_block_groups=groups, blocks_per_group=2)
    assert len(blocks(model)) == max(places) + 1
    x = model.get_layer("position_embedding")(model.get_layer("token_embedding")(inputs()["token_ids"]))
    for index in places:
        x = blocks(model)[index](x)
    np.testing.assert_allclose(model(inputs()), model.get_layer("final_norm")(x), atol=1e-5)


@pytest.mark.parametrize("options", [{"blocks_per_group": 2}, {"blocks_per_group": 0}])
def test_refuses_groups_that_do_not_divide_the_layers(options):
    with pytest.raises(ValueError, match="blocks_per_group must divide the number of layers, 5"):
        models.Encoder(SIZE, 11, **options)


def test_weights_are_counted_once():
    plain, shared = made(models.Encoder), made(models.Encoder, num_block_groups=1)
    of_a_block = blocks(plain)[0].count_params()
    assert plain.count_params() - shared.count_params() == 4 * of_a_block


def test_saved_once_and_loaded(tmp_path):
    model = made(models.Decoder, num_block_groups=2)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]
    np.testing.assert_array_equal(loaded(inputs()), model(inputs()))
    blocks(loaded)[0].feedforward.weights[0].assign_add(np.ones((16, 32)))
    assert np.abs(np.asarray(loaded(inputs())) - np.asarray(model(inputs()))).max() > 0.1


@pytest.mark.parametrize("feedforward", ["dense", MixtureOfExperts(8, router=3)])
def test_steps_are_the_whole(feedforward):
    model = made(models.Decoder, num_block_groups=2, feedforward=feedforward)
    steps, ids = models.Stepwise(model), inputs()["token_ids"]
    cache, outputs = steps.init_cache(2, 6), []
    assert len(cache) == 2 * SIZE.num_layers
    for start, end in ((0, 3), (3, 4), (4, 6)):
        output, cache = steps(ids[:, start:end], cache, start)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, 1), model(inputs()), atol=1e-5)


@pytest.mark.parametrize("groups", [0, 6])
def test_refuses_more_groups_than_layers(groups):
    with pytest.raises(ValueError, match="num_block_groups"):
        models.Encoder(SIZE, 11, num_block_groups=groups)
