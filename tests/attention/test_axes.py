"""Attention over chosen axes of inputs of rank above 3."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, attention_maps
from keras_transformer.export import export


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def same_weights(layer, reference, *inputs):
    layer(*inputs)
    reference(*inputs)
    layer.set_weights([normal(*weight.shape, seed=seed) for seed, weight in enumerate(layer.weights)])
    reference.set_weights(layer.get_weights())


@pytest.mark.parametrize(
    "axes, query, value, mask",
    [
        (2, (2, 3, 4, 8), (2, 3, 2, 8), (2, 3, 2, 4, 2)),
        ((2,), (2, 3, 4, 8), (2, 3, 2, 8), (2, 3, 4, 2)),
        (-2, (2, 3, 4, 8), (2, 3, 2, 8), (2, 4, 2)),
        (1, (2, 3, 4, 8), (2, 5, 4, 8), (2, 4, 3, 5)),
        ((1, 2), (2, 3, 4, 8), (2, 3, 2, 8), (2, 2, 3, 4, 3, 2)),
        ((2, 1), (2, 3, 4, 8), (2, 3, 2, 8), (2, 1, 4, 3, 2, 3)),
        ((2, 3), (2, 5, 3, 4, 8), (2, 5, 3, 2, 8), (3, 4, 3, 2)),
        ((3, 1), (2, 5, 3, 4, 8), (2, 2, 3, 6, 8), (2, 3, 4, 5, 6, 2)),
        (None, (2, 3, 4, 8), (2, 1, 2, 7), None),
    ],
)
def test_outputs_and_scores_are_those_of_keras(axes, query, value, mask):
    query, value = normal(*query), normal(*value, seed=1)
    options = {"num_heads": 2, "key_dim": 4, "value_dim": 3, "attention_axes": axes, "output_shape": (3, 2)}
    layer, reference = MultiHeadAttention(**options), keras.layers.MultiHeadAttention(**options)
    same_weights(layer, reference, query, value)
    if mask is not None:
        mask = np.random.default_rng(2).random(mask) < 0.7
        mask[..., 0] = True
    calls = {"attention_mask": mask, "return_attention_scores": True}
    (output, scores), (expected, expected_scores) = layer(query, value, **calls), reference(query, value, **calls)
    assert [output.shape, scores.shape] == [expected.shape, expected_scores.shape]
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-4)
    symbolic = layer(keras.Input(query.shape[1:]), keras.Input(value.shape[1:]), return_attention_scores=True)
    assert [x.shape[1:] for x in symbolic] == [x.shape[1:] for x in (output, scores)]


@pytest.mark.parametrize("mechanism", ["softmax", "local", "linear", "blockwise", "subspace"])
@pytest.mark.parametrize("options", [{}, {"use_causal_mask": True}])
def test_every_column_of_an_image_gives_what_it_gives_alone(mechanism, options):
    image = normal(2, 5, 3, 8)
    mask = np.arange(5)[None, :, None] < np.array([[3, 5, 2], [4, 1, 5]])[:, None]
    layer = MultiHeadAttention(2, 4, mechanism=mechanism, position="rotary", attention_axes=1)
    output = np.asarray(layer(image, image, query_mask=mask, value_mask=mask, **options))
    for column in range(3):
        x, tokens = image[:, :, column], mask[:, :, column]
        alone = layer.call(x, x, query_mask=tokens, value_mask=tokens, **options)
        np.testing.assert_allclose(output[:, :, column], alone, atol=1e-5)


def test_causality_over_several_axes_goes_by_the_flattened_order():
    image = normal(2, 3, 4, 8)
    layer = MultiHeadAttention(2, 4, sliding_window=5)
    flat = image.reshape(2, 12, 8)
    expected = np.asarray(layer(flat, flat, use_causal_mask=True)).reshape(image.shape)
    np.testing.assert_allclose(layer(image, image, use_causal_mask=True), expected, atol=1e-5)


def test_a_mask_of_the_attention_axes_is_that_of_every_batch_axis():
    video = normal(2, 4, 3, 2, 8)
    layer = MultiHeadAttention(2, 4, attention_axes=1)
    frames = np.array([[True, True, False, False], [True, True, True, True]])
    whole = np.broadcast_to(frames[:, :, None, None], video.shape[:-1])
    np.testing.assert_array_equal(
        layer(video, video, value_mask=frames, query_mask=frames),
        layer(video, video, value_mask=whole, query_mask=whole),
    )
    cut = layer(video[:1, :2], video[:1, :2])
    np.testing.assert_allclose(layer(video, video, value_mask=frames)[:1, :2], cut, atol=1e-6)


def test_keras_mask_of_a_grid_is_taken_into_account():
    ids = np.array([[[1, 2, 0], [3, 0, 0]]])
    x = keras.layers.Embedding(5, 8, mask_zero=True)(ids)
    layer = MultiHeadAttention(2, 4, attention_axes=2)
    output = layer(x, x)
    np.testing.assert_allclose(output[:, :1, :2], layer(x[:, :1, :2], x[:, :1, :2]), atol=1e-6)
    np.testing.assert_array_equal(output._keras_mask, ids > 0)


@pytest.mark.parametrize(
    "axes, query, value, options, message",
    [
        (1, (2, 3, 4, 8), (2, 3, 5, 8), {}, "axis 2, which is not an attention axis"),
        ((1, 2), (2, 3, 8), (2, 3, 8), {}, "between batch and features"),
        ((1, 1), (2, 3, 4, 8), (2, 3, 4, 8), {}, "between batch and features"),
        (0, (2, 3, 4, 8), (2, 3, 4, 8), {}, "between batch and features"),
        (None, (2, 3, 4, 8), (2, 3, 8), {}, "equal rank"),
        (1, (2, 3, 4, 8), (2, 3, 4, 8), {"positions": np.arange(3)}, "`positions`"),
        (1, (2, 3, 4, 8), (2, 3, 4, 8), {"value_mask": np.ones((2, 3, 4, 1), bool)}, "mask"),
        (1, (2, 3, 4, 8), (2, 3, 4, 8), {"attention_mask": np.ones((2, 4, 1, 1, 3, 3), bool)}, "attention_mask"),
    ],
)
def test_invalid_axes_and_shapes(axes, query, value, options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(2, 4, attention_axes=axes)(normal(*query), normal(*value), **options)


def test_a_cache_is_for_rank_3():
    layer = MultiHeadAttention(2, 4, attention_axes=1)
    image = normal(2, 3, 4, 8)
    layer(image, image)
    with pytest.raises(ValueError, match="`cache`"):
        layer(image, image, cache=layer.init_cache(2, 3), cache_index=0)
    with pytest.raises(ValueError, match="rank 3"):
        layer.memory_cache(image)


def test_attention_maps_have_the_axes_of_the_image():
    inputs = keras.Input((3, 4, 8))
    model = keras.Model(inputs, MultiHeadAttention(2, 4, attention_axes=2, name="rows")(inputs, inputs))
    scores = attention_maps(model)(normal(2, 3, 4, 8))["rows"]
    assert tuple(scores.shape) == (2, 3, 2, 4, 4)


def test_save_and_load(tmp_path):
    inputs = keras.Input((None, None, 8))
    model = keras.Model(inputs, MultiHeadAttention(2, 4, attention_axes=-3)(inputs, inputs))
    model.save(tmp_path / "axial.keras")
    loaded, x = keras.saving.load_model(tmp_path / "axial.keras"), normal(2, 3, 4, 8)
    np.testing.assert_array_equal(loaded(x), model(x))


def test_half_precision():
    image = normal(2, 3, 4, 8)
    layer = MultiHeadAttention(2, 4, attention_axes=(2, 1), dtype="mixed_float16")
    output = layer(image, image)
    assert keras.backend.standardize_dtype(output.dtype) == "float16"


@pytest.mark.slow
def test_export_with_dynamic_sizes(tmp_path):
    inputs = keras.Input((None, None, 8), name="image")
    x = MultiHeadAttention(2, 4, attention_axes=1)(inputs, inputs)
    x = MultiHeadAttention(2, 4, attention_axes=2)(x, x, use_causal_mask=True)
    report = export(keras.Model(inputs, x), tmp_path / "axial", progress=False)
    assert set(report.artifacts) == {"saved_model", "tflite", "onnx"}


@pytest.mark.exhaustive
def test_export_of_scores_of_several_axes(tmp_path):
    inputs = keras.Input((None, 3, 8), name="image")  # The scores of all pixels of larger images take gigabytes.
    x, scores = MultiHeadAttention(2, 4, attention_axes=(2, 1))(inputs, inputs, return_attention_scores=True)
    report = export(keras.Model(inputs, {"x": x, "scores": scores}), tmp_path / "axial", progress=False)
    assert set(report.artifacts) == {"saved_model", "tflite", "onnx"}


@pytest.mark.exhaustive
def test_export_of_scores_of_images_of_any_size(tmp_path):
    inputs = keras.Input((None, None, 8), name="image")
    x = MultiHeadAttention(2, 4, attention_axes=1)(inputs, inputs)
    x = MultiHeadAttention(2, 4, attention_axes=2)(x, x, use_causal_mask=True)
    x, scores = MultiHeadAttention(2, 4, attention_axes=(2, 1))(x, x, return_attention_scores=True)
    model = keras.Model(inputs, {"x": x, "scores": scores})
    sizes = [{"batch": 1, "height": 7, "width": 5}, {"batch": 3, "height": 6, "width": 11}]
    report = export(model, tmp_path / "axial", probes=sizes, progress=False)
    assert set(report.artifacts) == {"saved_model", "tflite", "onnx"}
