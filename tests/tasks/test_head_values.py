"""What each head computes, from the backbone's tokens and the head's weights in float64; and what it refuses."""

import math

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks

SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]], "int32")
MASK = np.array([[True] * 5, [True, True, True, False, False]])
INPUTS = {"token_ids": IDS, "padding_mask": MASK}


def encoder(**options):
    return models.Encoder(SIZE, 11, max_sequence_length=16, **options)


def shaken(model):
    """The model with all its weights moved, biases too."""
    for variable in model.trainable_variables:
        variable.assign(variable + 0.3 * keras.random.normal(variable.shape))
    return model


def weights(model, name):
    return [np.asarray(weight, "float64") for weight in model.get_layer(name).weights]


def tokens_of(backbone, inputs=INPUTS):
    return np.asarray(backbone(inputs), "float64")


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_sequence_classifier_with_a_pooler():
    backbone = encoder()
    model = shaken(tasks.SequenceClassifier(backbone, 3, pooling="first", hidden_dim=6))
    (kernel, bias), (head, head_bias) = weights(model, "pooler"), weights(model, "probabilities")
    hidden = np.tanh(tokens_of(backbone)[:, 0] @ kernel + bias)
    np.testing.assert_allclose(model(INPUTS), softmax(hidden @ head + head_bias), atol=1e-5)


def test_sequence_classifier_of_the_last_real_token_without_a_bias():
    backbone = encoder()
    model = shaken(tasks.SequenceClassifier(backbone, 3, pooling="last", activation=None, use_bias=False))
    (head,) = weights(model, "logits")
    last = tokens_of(backbone)[[0, 1], [4, 2]]
    np.testing.assert_allclose(model(INPUTS), last @ head, atol=1e-5)


def test_sequence_classifier_of_classes_that_go_together():
    backbone = encoder()
    model = shaken(tasks.SequenceClassifier(backbone, 3, activation="sigmoid"))
    tokens = tokens_of(backbone)
    mean = np.stack([tokens[0].mean(0), tokens[1, :3].mean(0)])
    kernel, bias = weights(model, "probabilities")
    np.testing.assert_allclose(model(INPUTS), 1 / (1 + np.exp(-(mean @ kernel + bias))), atol=1e-5)


def test_pooling_as_a_layer():
    model = tasks.SequenceClassifier(encoder(), 3, pooling=tasks.AttentionPooling(hidden_dim=5))
    assert model.layers[-3].kernel.shape == (8, 5)


def test_segments_are_added_to_the_tokens():
    backbone = shaken(encoder(num_segments=3, position=None))
    segments = np.array([[0, 0, 1, 1, 2]] * 2, "int32")
    table, own = (np.asarray(backbone.get_layer(f"{name}_embedding").weights[0]) for name in ("token", "segment"))
    probe = keras.Model(backbone.input, backbone.get_layer("token_and_segment").output)
    np.testing.assert_allclose(probe({**INPUTS, "segment_ids": segments}), table[IDS] + own[segments], atol=1e-6)


def test_without_segments_the_encoder_has_the_inputs_it_had():
    assert sorted(encoder().input) == ["padding_mask", "token_ids"]
    with pytest.raises(ValueError, match="num_segments"):
        encoder(num_segments=0)


def test_pair_classifier_has_a_pooler_as_wide_as_the_tokens():
    model = tasks.PairClassifier(encoder(num_segments=2), 2)
    assert model.get_layer("pooler").units == 8
    with pytest.raises(ValueError, match="num_segments=2"):
        tasks.PairClassifier(encoder(), 2)


OTHER = {"second_token_ids": IDS[::-1] + 1, "second_padding_mask": MASK[::-1]}
FIRST = {f"first_{name}": array for name, array in INPUTS.items()}


def vectors(backbone):
    second = {"token_ids": OTHER["second_token_ids"], "padding_mask": OTHER["second_padding_mask"]}
    for inputs in (INPUTS, second):
        mask = inputs["padding_mask"][..., None]
        yield (tokens_of(backbone, inputs) * mask).sum(1) / mask.sum(1)


def test_pair_matcher_compares_the_vectors_of_one_encoder():
    backbone = encoder()
    model = shaken(tasks.PairMatcher(backbone, 3))
    u, v = vectors(backbone)
    kernel, bias = weights(model, "probabilities")
    expected = softmax(np.concatenate([u, v, abs(u - v), u * v], axis=-1) @ kernel + bias)
    np.testing.assert_allclose(model({**FIRST, **OTHER}), expected, atol=1e-5)


def test_cosine_of_two_texts_and_of_one_with_itself():
    backbone = shaken(encoder())
    model = tasks.PairMatcher(backbone)
    u, v = vectors(backbone)
    expected = (u * v).sum(-1) / np.linalg.norm(u, axis=-1) / np.linalg.norm(v, axis=-1)
    np.testing.assert_allclose(model({**FIRST, **OTHER}), expected, atol=1e-5)
    same = {name.replace("first", "second"): array for name, array in FIRST.items()}
    np.testing.assert_allclose(model({**FIRST, **same}), [1.0, 1.0], atol=1e-6)


def test_span_answerer_keeps_padding_out_of_reach():
    backbone = encoder()
    model = shaken(tasks.SpanAnswerer(backbone))
    kernel, bias = weights(model, "span")
    expected = tokens_of(backbone) @ kernel + bias
    found = model(INPUTS)
    for index, name in enumerate(("start_logits", "end_logits")):
        logits = np.asarray(found[name])
        np.testing.assert_allclose(logits[MASK], expected[..., index][MASK], atol=1e-5)
        assert (logits[~MASK] == -1e9).all()


def masked_language_logits(model, backbone, embedding):
    (kernel, bias), (gamma, beta) = weights(model, "transform"), weights(model, "transform_norm")
    x = tokens_of(backbone) @ kernel + bias
    x = x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5))
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * gamma + beta
    return x @ embedding + weights(model, "logits")[-1]


def test_masked_language_model_reads_its_logits_off_the_embeddings():
    backbone = encoder()
    model = shaken(tasks.MaskedLanguageModel(backbone))
    table = weights(model, "token_embedding")[0]
    np.testing.assert_allclose(model(INPUTS), masked_language_logits(model, backbone, table.T), atol=1e-4)


def test_masked_language_model_with_a_matrix_of_its_own():
    backbone = encoder()
    model = shaken(tasks.MaskedLanguageModel(backbone, tie_embeddings=False))
    expected = masked_language_logits(model, backbone, weights(model, "logits")[0])
    np.testing.assert_allclose(model(INPUTS), expected, atol=1e-4)


def test_selected_positions_are_those_of_all():
    whole = shaken(tasks.MaskedLanguageModel(encoder()))
    selected = tasks.MaskedLanguageModel(encoder(), selected_positions=True)
    selected.set_weights(whole.get_weights())
    positions = np.array([[4, 1], [0, 2]], "int32")
    expected = np.take_along_axis(np.asarray(whole(INPUTS)), positions[..., None], axis=1)
    np.testing.assert_allclose(selected({**INPUTS, "masked_positions": positions}), expected, atol=1e-6)


def test_embeddings_stay_tied_after_loading(tmp_path):
    model = tasks.MaskedLanguageModel(encoder())
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras")
    assert again.count_params() == model.count_params()
    before = np.asarray(again(INPUTS))
    # Token 10 is not read; only the logits look at its vector.
    embeddings = again.get_layer("token_embedding").embeddings
    embeddings.assign(embeddings + np.outer(np.eye(11)[10], np.arange(8)))
    moved = np.abs(np.asarray(again(INPUTS)) - before).max(axis=(0, 1))
    assert moved[10] > 1e-3
    assert moved[:10].max() == 0


def test_a_pretrained_backbone_brings_its_weights_to_the_next_task():
    backbone = encoder()
    shaken(tasks.MaskedLanguageModel(backbone))
    tagger = tasks.Tagger(backbone, 4)
    kernel, bias = weights(tagger, "logits")
    np.testing.assert_allclose(tagger(INPUTS), tokens_of(backbone) @ kernel + bias, atol=1e-5)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: tasks.SequenceClassifier(encoder(), 0), "num_classes"),
        (lambda: tasks.SequenceClassifier(encoder(), True), "num_classes"),
        (lambda: tasks.SequenceClassifier(encoder(), 3, pooling="median"), "attention, first, last, max, mean"),
        (lambda: tasks.Tagger(encoder(), -1), "num_tags"),
        (lambda: tasks.PairMatcher(encoder(), 0), "num_classes"),
        (lambda: tasks.SpanAnswerer(tasks.SequenceClassifier(encoder(), 3)), r"tokens \(B, T, D\)"),
        (lambda: tasks.MaskedLanguageModel(models.ViT(SIZE, 4, 8)), "no token embedding"),
    ],
)
def test_what_cannot_be(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_embeddings_that_cannot_be_reversed():
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    backbone = keras.Model({"token_ids": ids}, keras.layers.Embedding(11, 8, name="token_embedding")(ids))
    with pytest.raises(ValueError, match="tie_embeddings=False"):
        tasks.MaskedLanguageModel(backbone)
    with pytest.raises(ValueError, match="tie_embeddings=False"):
        tasks.LanguageModel(backbone)
    assert tasks.MaskedLanguageModel(backbone, tie_embeddings=False).output_shape == (None, None, 11)


def test_a_tied_table_of_another_width_is_named():
    size = models.BahdanauSize(embedding_dim=6, hidden_dim=8, alignment_dim=8, readout_dim=4)
    message = "'bahdanau' has width 4, its 'target_token_embedding' has width 6"
    with pytest.raises(ValueError, match=message):
        tasks.LanguageModel(models.Bahdanau(size, vocabulary_size=11))
    assert tasks.LanguageModel(models.Bahdanau(size, vocabulary_size=11), tie_embeddings=False).vocabulary_size == 11
    narrow = models.ALBERT(SIZE, vocabulary_size=11, embedding_dim=4)
    with pytest.raises(ValueError, match="'token_embedding' has width 4"):
        tasks.MaskedLanguageModel(narrow, transform=False)
    assert tasks.MaskedLanguageModel(narrow).output_shape == (None, None, 11)
