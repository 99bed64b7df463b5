"""Rates by width, and the coordinate check of muP: what a step changes does not depend on the width."""

import re

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, training

IDS = np.random.default_rng(0).integers(0, 11, (4, 8))
INPUTS = {"token_ids": IDS, "padding_mask": np.ones_like(IDS, bool)}


def build(width, base=16, **options):
    keras.utils.set_random_seed(0)
    backbone = models.Decoder(models.Size(1, width, width // 8, 2 * width), 11, max_sequence_length=8, **options)
    return tasks.LanguageModel(backbone, head_scale=base / width)


def test_matrices_between_widths_have_smaller_rates():
    model = build(64)
    multipliers = training.width_multipliers(model, build(16))
    rates = {
        weight.path: next((rate for pattern, rate in multipliers.items() if re.search(pattern, weight.path)), 1.0)
        for weight in model.trainable_variables
    }
    for path, rate in rates.items():
        assert rate == (0.25 if path.endswith("/kernel") else 1.0), path
    assert len(multipliers) == 6
    assert training.width_multipliers(model, model) == {}


def test_the_growth_is_that_of_the_inputs():
    def network(width, hidden):
        layers = [keras.layers.Dense(hidden, name="up"), keras.layers.Dense(width, name="down")]
        return keras.Sequential([keras.Input((width,)), *layers, keras.layers.Dense(3, name="head")], name="network")

    multipliers = training.width_multipliers(network(8, 40), network(4, 10))
    assert multipliers == {"(^|/)up/kernel$": 0.5, "(^|/)down/kernel$": 0.25}


def changes(width, is_mup):
    """The root mean square of how much four steps change the logits."""
    model = build(width, base=16 if is_mup else width)
    multipliers = training.width_multipliers(model, build(16)) if is_mup else {}
    optimizer = training.LayerwiseAdamW(0.02, multipliers=multipliers, weight_decay=0.0)
    model.compile(optimizer, training.MaskedCrossentropy(), jit_compile=False)
    before = keras.ops.convert_to_numpy(model(INPUTS))
    for _ in range(4):
        model.train_on_batch(INPUTS, IDS)
    return np.sqrt(np.mean((keras.ops.convert_to_numpy(model(INPUTS)) - before) ** 2))


@pytest.mark.exhaustive
def test_coordinate_check():
    mup, standard = (changes(128, is_mup) / changes(32, is_mup) for is_mup in (True, False))
    assert 1 / 1.5 < mup < 1.5
    assert standard > 2


def test_refusals():
    with pytest.raises(ValueError, match="20 trainable weights"):
        training.width_multipliers(build(16), keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    inputs = keras.Input((4,))
    one = keras.Model(inputs, keras.layers.Dense(2, use_bias=False)(inputs))
    other = keras.Sequential([keras.Input((4, 1)), keras.layers.Conv1D(2, 1, use_bias=False)])
    with pytest.raises(ValueError, match="does not correspond"):
        training.width_multipliers(one, other)
