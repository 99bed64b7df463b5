"""Training of a draft head: the loss is that of the head in numpy, and a text that repeats is learned."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, training

TOKENS = [1, 3, 4, 7]


def trainer(**options):
    keras.utils.set_random_seed(3)
    made = training.DraftHeadTrainer([4, 1, 7, 3, 1], hidden_dim=6, width=5, num_steps=3, **options)
    for weight in made.weights:
        if "metric" not in weight.path:
            weight.assign(weight + keras.random.normal(weight.shape, stddev=0.3, seed=len(weight.path)))
    return made


def examples(rows=2, length=9):
    rng = np.random.default_rng(0)
    inputs = {"hidden_states": rng.normal(size=(rows, length, 6)), "token_ids": rng.integers(0, 8, (rows, length))}
    return inputs, rng.integers(0, 8, (rows, length))


def test_the_loss_is_that_of_the_head():
    made, (inputs, choices) = trainer(), examples()
    made.compile("adam")
    found = made.evaluate(inputs, choices, verbose=0, return_dict=True)
    head, losses, accepted = made.draft_head(), [], []
    for row in range(2):
        for start in range(6):
            state, right = head.begin(inputs["hidden_states"][row, start : start + 1]), []
            for step in range(1, 4):
                logits, state = head.step(state, inputs["token_ids"][row, start + step : start + step + 1])
                choice = choices[row, start + step]
                right.append(head.tokens[logits[0].argmax()] == choice)
                if choice in TOKENS:
                    losses.append(np.log(np.exp(logits[0]).sum()) - logits[0, TOKENS.index(choice)])
            accepted.append(np.cumprod(right).sum())
    assert head.tokens.tolist() == TOKENS
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert found["accepted"] == pytest.approx(np.mean(accepted))


def test_it_learns_a_text_that_repeats():
    """The token after next depends on the hidden state alone: tokens are the same everywhere."""
    kinds = np.random.default_rng(1).integers(0, 2, 16)
    inputs = {"hidden_states": np.zeros((16, 8, 6)), "token_ids": np.full((16, 8), 3)}
    inputs["hidden_states"][:, :, 0], inputs["hidden_states"][:, :, 1] = kinds[:, None], 1.0
    choices = np.where(kinds[:, None], 7, 1) * np.ones((1, 8), int)
    made = trainer()
    made.compile(keras.optimizers.Adam(0.02))
    before = made.evaluate(inputs, choices, verbose=0, return_dict=True)["accepted"]
    made.fit(inputs, choices, epochs=30, batch_size=16, verbose=0)
    after = made.evaluate(inputs, choices, verbose=0, return_dict=True)["accepted"]
    assert before < 2.5
    assert after == 3.0


def test_examples_are_what_the_model_computes():
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(models.Llama(models.Size(2, 16, 4, 24), vocabulary_size=19))
    rows = np.random.default_rng(2).integers(0, 19, (3, 7))
    inputs, choices = training.draft_examples(model, rows, batch_size=2, verbose=0)
    read = {"token_ids": rows, "padding_mask": np.ones((3, 7), bool)}
    np.testing.assert_array_equal(choices, np.asarray(model(read)).argmax(-1))
    np.testing.assert_allclose(inputs["hidden_states"], np.asarray(model.backbone(read)), atol=2e-3)
    np.testing.assert_array_equal(inputs["token_ids"], rows)


def test_refuses():
    with pytest.raises(ValueError, match="needs tokens"):
        training.DraftHeadTrainer([], hidden_dim=4)
    translator = tasks.LanguageModel(models.T5(models.T5Size(1, 8, 2, 16, head_dim=4), 10))
    with pytest.raises(ValueError, match="has an encoder"):
        training.draft_examples(translator, [[1, 2]])
