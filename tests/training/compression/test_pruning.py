"""Structured pruning: what is measured, what is removed, and that the rest computes what it did."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks, training
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.backend import keras_private
from keras_transformer.training import Importance, PruningError
from keras_transformer.training.compression.importance import attention_layers, block_layers, feedforward_layers

IDS = np.random.default_rng(0).integers(1, 20, (6, 5)).astype("int32")
INPUTS = {"token_ids": IDS, "padding_mask": np.ones_like(IDS, bool)}
LABELS = np.array([0, 1, 2, 0, 1, 2])
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def noise(model):
    """Gives every weight a value of its own, biases too."""
    generator = np.random.default_rng(3)
    for weight in model.trainable_weights:
        weight.assign(weight.numpy() + generator.normal(size=weight.shape) * 0.1)
    return model


def classifier(layers=2, **options):
    backbone = models.Encoder(models.Size(layers, 16, 4, 12), vocabulary_size=20, max_sequence_length=8, **options)
    return noise(tasks.SequenceClassifier(backbone, 3, activation=None))


def decoder():
    attention = MultiHeadAttention(6, 4, num_key_value_heads=3, position="rotary", use_gate=True)
    options = {"position": None, "attention": attention, "feedforward": "gated", "activation": "silu"}
    backbone = models.Decoder(models.Size(3, 24, 6, 12), vocabulary_size=20, **options)
    return noise(tasks.LanguageModel(backbone)), INPUTS


def vit():
    return noise(models.ViT(models.Size(3, 16, 4, 12), patch_size=4, image_size=8)), np.random.default_rng(1).normal(
        size=(2, 8, 8, 3)
    )


def translator():
    backbone = models.Transformer(models.Size(2, 16, 4, 12), vocabulary_size=20, residual="pre")
    names = ("source_token_ids", "target_token_ids")
    masks = {name.replace("token_ids", "padding_mask"): np.ones_like(IDS, bool) for name in names}
    return noise(tasks.LanguageModel(backbone)), {**dict.fromkeys(names, IDS), **masks}


def silence(model, groups, units):
    """Zeroes what the output kernels read of some key/value groups and units."""
    for layer in attention_layers(model):
        kernel = keras_private.kernel(layer.output_dense)
        value = kernel.numpy()
        size = layer.num_heads // layer.num_key_value_heads
        for group in groups:
            value[group * size : (group + 1) * size] = 0
        kernel.assign(value)
    for layer in feedforward_layers(model):
        value = layer._output_dense.kernel.numpy()
        value[units] = 0
        layer._output_dense.kernel.assign(value)


@pytest.mark.parametrize("make", [decoder, vit, translator])
def test_what_has_zero_weights_goes_and_nothing_changes(make):
    model, inputs = make()
    groups = attention_layers(model)[0].num_key_value_heads
    silence(model, groups=[1], units=[0, 5, 11])
    target = model.predict(inputs, verbose=0)
    batch = inputs, np.ones_like(target)
    small = training.prune(model, heads=1.01 / groups, feedforward_units=0.25, data=[batch], loss="mse")
    assert type(small) is type(model)
    for before, after in zip(attention_layers(model), attention_layers(small), strict=True):
        assert after.num_key_value_heads == before.num_key_value_heads - 1
        assert after.num_heads == before.num_heads // before.num_key_value_heads * after.num_key_value_heads
        assert after.key_dim == before.key_dim
    assert {layer.intermediate_dim for layer in feedforward_layers(small)} == {9}
    np.testing.assert_allclose(small.predict(inputs, verbose=0), target, atol=1e-5)
    assert small.count_params() < model.count_params()
    assert {layer.intermediate_dim for layer in feedforward_layers(model)} == {12}


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [decoder, vit, translator])
def test_a_block_that_adds_nothing_goes(make, tmp_path):
    model, inputs = make()
    block = block_layers(model)[1]
    for layer in keras_private.flatten_layers(block):
        if layer.name in ("attention_output", "output"):
            for weight in layer.weights:
                weight.assign(np.zeros(weight.shape))
    target = model.predict(inputs, verbose=0)
    small = training.prune(model, blocks=1, data=[(inputs, np.ones_like(target))], loss="mse")
    names = [each.name for each in block_layers(model)]
    assert [each.name for each in block_layers(small)] == [names[0], *names[2:]]
    np.testing.assert_allclose(small.predict(inputs, verbose=0), target, atol=1e-5)
    small.save(tmp_path / "small.keras")
    loaded = load_model(tmp_path / "small.keras")
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), small.predict(inputs, verbose=0))
    if isinstance(small, tasks.LanguageModel) and not small.is_encoder_decoder:
        assert small.generate([3, 1], max_new_tokens=3) == model.generate([3, 1], max_new_tokens=3)


@pytest.mark.exhaustive
def test_importance_is_the_derivative_of_a_gate():
    """Michel et al., equation 2: by differences of the loss, with the contribution of a part scaled a little."""
    model = classifier()
    batches = [({name: x[rows] for name, x in INPUTS.items()}, LABELS[rows]) for rows in (slice(0, 3), slice(3, 6))]
    found = training.measure_importance(model, batches, CROSSENTROPY)

    def slope(variables, index):
        """The mean over batches of the absolute derivative, when the rows at an index of the first axis are scaled."""
        slopes = []
        for x, y in batches:
            losses = []
            for factor in (1.02, 0.98):
                kept = [variable.numpy() for variable in variables]
                for variable, value in zip(variables, kept, strict=True):
                    scaled = value.copy()
                    scaled[index] *= factor
                    variable.assign(scaled)
                losses.append(float(CROSSENTROPY(y, model(x))))
                for variable, value in zip(variables, kept, strict=True):
                    variable.assign(value)
            slopes.append(abs(losses[0] - losses[1]) / 0.04)
        return np.mean(slopes)

    layer = attention_layers(model)[1]
    heads = [slope([keras_private.kernel(layer.output_dense)], head) for head in range(4)]
    np.testing.assert_allclose(found.heads[layer.path], heads, rtol=0.02, atol=1e-4)
    fed = feedforward_layers(model)[0]
    units = [slope([fed._output_dense.kernel], unit) for unit in range(12)]
    np.testing.assert_allclose(found.feedforward_units[fed.path], units, rtol=0.02, atol=1e-4)
    block = model.get_layer("encoder_block_1")
    outputs = [layer.output_dense, block.feedforward._output_dense]
    whole = slope([weight for each in outputs for weight in each.weights], slice(None))
    assert found.blocks["encoder_block_1"] == pytest.approx(whole, rel=0.02, abs=1e-4)


def test_the_least_important_go_first_and_training_goes_on():
    model = classifier(layers=3)
    model.compile("adam", CROSSENTROPY)
    paths = [layer.path for layer in attention_layers(model)]
    fed = [layer.path for layer in feedforward_layers(model)]
    scores = Importance(
        {path: np.array([3.0, 1.0, 4.0, 2.0]) for path in paths},
        {path: np.arange(12.0)[::-1] for path in fed},
        {"encoder_block_0": 2.0, "encoder_block_1": 1.0, "encoder_block_2": 3.0},
    )
    small = training.prune(model, heads=0.5, feedforward_units=0.75, blocks=1, importance=scores)
    assert [each.name for each in block_layers(small)] == ["encoder_block_0", "encoder_block_2"]
    for before, after in zip(
        [attention_layers(model)[index] for index in (0, 2)], attention_layers(small), strict=True
    ):
        np.testing.assert_array_equal(after.query_dense.kernel, before.query_dense.kernel.numpy()[:, [0, 2]])
        np.testing.assert_array_equal(after.value_dense.bias, before.value_dense.bias.numpy()[[0, 2]])
        np.testing.assert_array_equal(after.output_dense.kernel, before.output_dense.kernel.numpy()[[0, 2]])
        np.testing.assert_array_equal(after.output_dense.bias, before.output_dense.bias.numpy())
    np.testing.assert_array_equal(
        feedforward_layers(small)[1]._hidden_dense.kernel,
        feedforward_layers(model)[2]._hidden_dense.kernel.numpy()[:, :3],
    )
    small.compile(keras.optimizers.Adam(0.01), CROSSENTROPY)
    losses = small.fit(INPUTS, LABELS, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    # The loss of `compile` serves, if there is one.
    assert training.prune(model, heads=0.5, data=[(INPUTS, LABELS)]).count_params() < model.count_params()


def test_errors():
    model = classifier()
    data = [(INPUTS, LABELS)]
    options = {"data": data, "loss": CROSSENTROPY}
    alibi = classifier(position="alibi")
    shared = classifier(num_block_groups=1)
    adapted = training.add_lora(classifier(), rank=1)
    one = models.Decoder(models.Size(1, 16, 4, 12), 20, attention=MultiHeadAttention(4, 4, num_key_value_heads=1))
    for call, message in [
        (lambda: training.prune(model, **options), "nothing to remove"),
        (lambda: training.prune(model, heads=1.0, **options), r"heads must be a share in \[0, 1\)"),
        (lambda: training.prune(model, feedforward_units=-0.1, **options), "feedforward_units must be a share"),
        (lambda: training.prune(model, blocks=2, **options), r"blocks must be in \[0, 2\), of 2 blocks"),
        (lambda: training.prune(model, heads=0.5), "needs data"),
        (lambda: training.prune(model, heads=0.5, data=data), "has no loss"),
        (lambda: training.prune(model, heads=0.5, data=[], loss="mse"), "no batches"),
        (
            lambda: training.prune(alibi, heads=0.5, **options),
            "self_attention' cannot be removed: its position is ALiBi",
        ),
        (lambda: training.prune(one, heads=0.5, **options), "one key/value head"),
        (
            lambda: (
                training.prune(shared, blocks=0, heads=0.5, **options)
                and training.prune(classifier(layers=4, num_block_groups=2), blocks=1, **options)
            ),
            "called 2 times",
        ),
        (lambda: training.prune(adapted, heads=0.5, **options), "has an adapter"),
        (lambda: training.prune(object(), heads=0.5, **options), "takes a Functional model"),
        (
            lambda: training.measure_importance(
                keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), data, "mse"
            ),
            "has no MultiHeadAttention",
        ),
    ]:
        with pytest.raises(PruningError, match=message):
            call()
    assert training.prune(alibi, feedforward_units=0.5, **options).count_params() < alibi.count_params()
