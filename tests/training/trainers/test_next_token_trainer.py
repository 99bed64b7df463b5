"""Training on labeled tokens only: the loss and gradients of the whole logits, and of each document alone."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import blocks, data, models, tasks, training
from keras_transformer.training.losses.chunked_crossentropy import chunked_crossentropy

VOCABULARY = 23


def language_model(**options):
    keras.utils.set_random_seed(4)
    backbone = models.Llama(models.Size(2, 16, 4, 24), VOCABULARY, num_key_value_heads=2)
    return tasks.LanguageModel(backbone, **options)


def documents(count=9, seed=0):
    random = np.random.default_rng(seed)
    rows = [random.integers(1, VOCABULARY, random.integers(2, 14)).tolist() for _ in range(count)]
    masks = [(random.random(len(row)) < 0.6).tolist() for row in rows]
    masks[0][-1] = True
    return rows, masks


def batches(batch_size=2):
    rows, masks = documents()
    return data.pack(rows, 16, batch_size, label_masks=masks, shuffle=False)


def expected_loss(model, weights_of_tokens=False):
    """The mean cross-entropy of labeled tokens, each document read alone with the whole logits."""
    total = count = 0
    for row, mask in zip(*documents(), strict=True):
        inputs = {"token_ids": np.array([row[:-1]]), "padding_mask": np.ones((1, len(row) - 1), bool)}
        logits = keras.ops.convert_to_numpy(model(inputs))[0].astype("float64")
        likely = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.array(mask[1:])
        total -= likely[np.arange(len(row) - 1), row[1:]][chosen].sum()
        count += chosen.sum()
    return total / count


@pytest.mark.parametrize("options", [{}, {"tie_embeddings": False}, {"logit_soft_cap": 2.0, "head_bias": True}])
@pytest.mark.parametrize("chunk_size", [1, 5, 1000])
def test_the_loss_is_that_of_each_document_alone(options, chunk_size):
    model = language_model(**options)
    trainer = training.NextTokenTrainer(model, chunk_size=chunk_size)
    trainer.compile("sgd")
    found = trainer.evaluate(batches(), verbose=0, return_dict=True)
    np.testing.assert_allclose(found["token_loss"], expected_loss(model), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"tie_embeddings": False, "head_bias": True}, {"logit_soft_cap": 2.0}])
@pytest.mark.parametrize("adapters", exhaustive_but([False, True], True))
def test_a_step_is_that_with_the_whole_logits(options, adapters):
    stream = batches(batch_size=4)
    changed = []
    for is_chunked in (True, False):
        model = language_model(**options)
        if adapters:
            training.add_lora(model, rank=2, layers="attention|feedforward")
            for weight in model.trainable_weights:
                weight.assign(np.random.default_rng(1).normal(size=weight.shape) * 0.3)
        if is_chunked:
            trainer = training.NextTokenTrainer(model, chunk_size=3)
            trainer.compile(keras.optimizers.SGD(0.5))
        else:
            packed = models.packed(model.backbone)
            trainer = keras.Model(packed.input, model._to_logits(packed.output))
            trainer.compile(keras.optimizers.SGD(0.5), training.MaskedCrossentropy())
        loss = trainer.fit(stream, epochs=2, verbose=0).history["loss"]
        changed.append((loss, [keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights]))
    (loss, weights), (expected, expected_weights) = changed
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert len(weights) == len(expected_weights) > 10
    for weight, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-3, atol=2e-5)


@pytest.mark.exhaustive
def test_only_adapters_learn_and_recomputation_changes_nothing():
    changed = []
    for every in (0, 1):
        model = training.add_lora(language_model(), rank=2)
        before = {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.non_trainable_weights}
        training.recompute_blocks(model, every)
        assert all(layer.recompute == bool(every) for layer in model.layers if isinstance(layer, blocks.DecoderBlock))
        trainer = training.NextTokenTrainer(model)
        trainer.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=2))
        trainer.fit(batches(), epochs=4, verbose=0)
        for weight in model.non_trainable_weights:
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), before[weight.path])
        changed.append([keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights])
    assert max(np.abs(weight).max() for weight in changed[0][1::2]) > 0  # B is zero at first.
    for one, other in zip(*changed, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads a graph of TensorFlow")
@pytest.mark.parametrize(
    ("vocabulary_size", "length", "is_frozen", "expected"),
    [(50_257, 4096, False, 683), (150_000, 1000, False, 250), (500, 100, False, 100), (50_257, 300, True, 100)],
)
def test_chunks_are_equal_parts_of_a_batch(vocabulary_size, length, is_frozen, expected):
    import tensorflow as tf

    model = tasks.LanguageModel(models.Llama(models.Size(1, 2, 1, 2), vocabulary_size))
    model.trainable = not is_frozen
    trainer = training.NextTokenTrainer(model, packed=False)
    step = tf.function(lambda labels, hidden: trainer.compute_loss(y=labels, y_pred=hidden))
    specs = tf.TensorSpec((1, length), "int32"), tf.TensorSpec((1, length, 2))
    graph = step.get_concrete_function(*specs).graph
    (loop,) = (each for each in graph.get_operations() if "While" in each.type)
    body = graph._get_function(loop.get_attr("body").name).graph
    (logits,) = (each.outputs[0] for each in body.get_operations() if each.type == "Softmax")
    assert logits.shape == (expected, vocabulary_size)


def test_the_head_reads_labeled_tokens_in_chunks():
    shapes = []

    def head(rows):
        shapes.append(tuple(rows.shape))
        return rows

    hidden = np.random.default_rng(0).normal(size=(10, 6)).astype("float32")
    weights = np.array([0, 0, 0, 1, 0, 0.5, 0, 0, 2, 0], "float32")
    labels = np.arange(10, dtype="int32") % 6
    loss = chunked_crossentropy(hidden, labels, weights, head, [], chunk_size=2, training=False)
    likely = hidden - np.log(np.exp(hidden).sum(-1, keepdims=True))
    np.testing.assert_allclose(loss, -(weights * likely[np.arange(10), labels]).sum(), rtol=1e-5)
    assert set(shapes) == {(1, 2, 6)}


def test_a_batch_without_labels_has_loss_0():
    trainer = training.NextTokenTrainer(language_model())
    trainer.compile("sgd")
    inputs, labels = batches()[0]
    assert trainer.evaluate(inputs, np.full_like(labels, -100), verbose=0, return_dict=True)["loss"] == 0
    before = trainer.get_weights()
    trainer.train_on_batch(inputs, np.full_like(labels, -100))
    for weight, value in zip(trainer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_rows_of_one_document_need_no_segments():
    model = language_model()
    trainer = training.NextTokenTrainer(model, packed=False)
    trainer.compile("sgd")
    tokens = np.array([[3, 1, 4, 1]])
    found = trainer.evaluate({"token_ids": tokens, "padding_mask": tokens > 0}, np.array([[1, 4, 1, 5]]), verbose=0)
    logits = keras.ops.convert_to_numpy(model({"token_ids": tokens, "padding_mask": tokens > 0}))[0]
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(4), [1, 4, 1, 5]]
    np.testing.assert_allclose(found[0], expected.mean(), rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="chunk_size"):
        training.NextTokenTrainer(language_model(), chunk_size=0)
    translator = tasks.LanguageModel(models.Transformer(models.Size(1, 8, 2, 16), 20, max_sequence_length=8))
    with pytest.raises(ValueError, match="encoder"):
        training.NextTokenTrainer(translator)
