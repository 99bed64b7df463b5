"""Tests of every model and task."""

import keras
import model_cases as cases
import numpy as np
import pytest
from keras import ops
from variants import exhaustive_but

from keras_transformer.generation import SAMPLERS
from keras_transformer.models import Stepwise
from keras_transformer.utils.serialization import load_model
from laws import as_float32, randomize

BUILDERS = {**cases.MODELS, **cases.TASKS}
# Only tokens are padded; features of a fixed length are not.
OF_TOKENS = sorted(set(BUILDERS) - {"clip", "clip_text", "clip_vision", "siglip", "siglip_text", "whisper_encoder"})
# Models with memories, selections, statistics or pairs, through which rows could reach one another.
MIXING = (
    *("clip", "d_fine", "kosmos", "mixtral", "qwen2_5_vl", "recurrent_memory", "rednet", "reformer", "retro", "rwkv7"),
    *("sam", "speech_pretraining", "swin", "transformer", "transformer_xl", "vits", "xlnet"),
)
# Models that read padding in different ways.
PADDED = ("bert", "gemma2", "gpt2", "longformer", "retnet", "t5", "transformer", "xlnet")
# Layers that stay in float32 under a mixed policy.
FLOAT32_OUTPUTS = {*cases.TASKS, "clip", "dit", "mm_dit", "flux"}


def make(name, seed=0):
    keras.utils.set_random_seed(seed)
    model = BUILDERS[name]()
    # Random statistics in the batch normalization of a convolutional network would overflow float32.
    return (
        model if name in ("rednet", "resnet", "detr", "rt_detr", "d_fine", "hgnet_v2") else randomize(model, scale=0.2)
    )


def outputs(model, arrays):
    return [as_float32(output) for output in keras.tree.flatten(model(arrays))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_saved_and_loaded_model_is_equal(name, tmp_path):
    model = make(name)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model)
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]
    arrays = cases.inputs(model)
    for got, expected in zip(outputs(loaded, arrays), outputs(model, arrays), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", exhaustive_but(sorted(BUILDERS), *MIXING))
def test_row_does_not_depend_on_other_rows(name):
    model = make(name)
    arrays = cases.inputs(model, batch_size=3)
    one = {key: array[1:2] for key, array in arrays.items()}
    for whole, alone in zip(outputs(model, arrays), outputs(model, one), strict=True):
        if alone.shape == (1, 1):  # CLIP: similarities of all images and texts.
            whole = whole[:, 1:2]
        np.testing.assert_allclose(alone[0], whole[1], atol=2e-5 * max(1, np.abs(whole).max()))


def masks(model):
    return [tensor.name for tensor in keras.tree.flatten(model.input) if tensor.name.endswith("padding_mask")]


@pytest.mark.parametrize("name", exhaustive_but(OF_TOKENS, *PADDED))
def test_padding_changes_nothing(name):
    """Neither padding nor, where it is optional, a mask of rows without padding."""
    model = make(name)
    if not masks(model):
        pytest.skip("no token inputs")
    arrays = cases.inputs(model)
    if all(model_input(model, mask)._keras_history.operation.optional for mask in masks(model)):
        without = outputs(model, arrays | dict.fromkeys(masks(model)))
        for expected, got in zip(outputs(model, arrays), without, strict=True):
            np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected[np.abs(expected) < 1e8]).max())
    padded = {key: _pad(array, key, model) for key, array in arrays.items()}
    for expected, got in zip(outputs(model, arrays), outputs(model, padded), strict=True):
        got = got[tuple(slice(size) for size in expected.shape)]
        np.testing.assert_allclose(got, expected, atol=2e-5 * max(1, np.abs(expected[np.abs(expected) < 1e8]).max()))


def _pad(array, name, model):
    """Appends four padding tokens on the right, different from the others, so that an unmasked one is detected."""
    axes = [axis for axis, size in enumerate(model_input(model, name).shape) if axis and size is None]
    if (
        name == "images"
        or array.ndim == cases.IN_TEXT.get(name) == 3
        or name.startswith("neighbor")
        or name == "targets"
    ):
        return array if name != "targets" else np.pad(array, [(0, 0), (0, 0), (0, 4)])
    if name == "permutation_mask":
        return np.pad(array, [(0, 0), (0, 4), (0, 4)])
    if not axes:  # Features of a fixed length.
        return array
    axis = axes[-1]
    widths = [(0, 4 if each == axis else 0) for each in range(array.ndim)]
    return np.pad(array, widths, constant_values=False if array.dtype == bool else 1)


def model_input(model, name):
    return next(tensor for tensor in keras.tree.flatten(model.input) if tensor.name == name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_gradients_reach_every_weight(name):
    model = make(name)
    arrays = cases.inputs(model)
    targets = keras.tree.map_structure(
        lambda output: np.random.default_rng(3).normal(size=output.shape).astype("float32"), model(arrays)
    )
    before = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=False)
    model.train_on_batch(arrays, targets)
    for weight in model.trainable_weights:
        assert np.all(np.isfinite(np.asarray(weight))), weight.path
    still = [weight.path for weight in model.trainable_weights if np.all(np.asarray(weight) == before[weight.path])]
    # A key bias adds a constant to all scores of a query; softmax is invariant to it.
    if name == "detr":  # The first queries are zeros, and so is what their self-attention gives at first.
        first = ("decoder_block_0/self_attention", "decoder_block_0/mixer_residual")
        still = [path for path in still if not path.startswith(first)]
    if name in ("rt_detr", "d_fine"):  # The losses of all blocks train these: see tests/models/test_rt_detr.py.
        still = [path for path in still if not path.startswith(("query_selection", "refined_boxes", "first_boxes"))]
    if name in ("vits", "speech_synthesis"):  # Durations are rounded: see tests/audio/test_synthesis.py.
        still = [path for path in still if not path.startswith("duration_predictor")]
    if name == "semantic_segmentation":  # Its batch norm subtracts the mean, and with it these biases.
        still = [path for path in still if not path.startswith("head_projection") or not path.endswith("bias")]
    assert [path for path in still if "/key" not in path or not path.endswith("bias")] == []


# Durations of speech are rounded, and differ where the tokens do.
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(set(BUILDERS) - {"vits", "speech_synthesis"}))
def test_mixed_precision(name):
    full = make(name)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = BUILDERS[name]()
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(full.get_weights())
    assert {weight.dtype for weight in mixed.trainable_weights} == {"float32"}
    arrays = cases.inputs(full)
    tensors, expected = keras.tree.flatten(mixed(arrays)), outputs(full, arrays)
    for tensor, reference in zip(tensors, expected, strict=True):
        if name in FLOAT32_OUTPUTS:
            assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
        got = np.asarray(ops.cast(tensor, "float32"))
        scale = np.abs(reference[np.abs(reference) < 1e8]).max()
        # A unit in the last place of bfloat16 is 2^-8; errors of two blocks add up.
        assert np.sqrt(np.mean((got - reference) ** 2)) <= 2**-8 * 8 * scale


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [[5, 1, 2], *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ([1] * 8, [8]))], ids=str
)
@pytest.mark.parametrize("name", cases.GENERATIVE)
def test_full_pass_equals_chunks_and_steps(name, sizes):
    backbone = make(name)
    steps = Stepwise(backbone)
    arrays = cases.inputs(backbone)
    whole = np.asarray(backbone(arrays))
    side = "target_" if "target_token_ids" in arrays else ""
    ids = arrays[f"{side}token_ids"]
    cache = steps.init_cache(len(ids), max_length=ids.shape[1])
    cache |= steps.encode(*(arrays[key] for key in steps.source_names)) if steps.source_names else {}
    parts, index = [], 0
    for size in sizes:
        output, cache = steps(ids[:, index : index + size], cache, np.full(len(ids), index, "int32"))
        parts.append(np.asarray(output))
        index += size
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=3e-5 * np.abs(whole).max())


@pytest.fixture(scope="module")
def writer():
    return make("language_model")


@pytest.mark.parametrize("name", sorted(cases.SAMPLERS))
def test_sampler_continuation_is_independent_of_the_batch(writer, name):
    """Each prompt in turn is first in a ragged batch; with the same seed its continuation equals that without a batch."""
    sampler = SAMPLERS[name](**cases.SAMPLERS[name])
    prompts, options = [[5, 6, 7], [8], [9, 4, 3, 12, 11]], {"max_new_tokens": 5, "sampler": sampler, "seed": 4}
    for first in range(3):
        together = writer.generate([*prompts[first:], *prompts[:first]], **options)
        assert together[0] == writer.generate(prompts[first], **options)
        tokens = keras.tree.flatten(together)
        assert len(tokens) >= 15
        assert all(0 <= token < cases.VOCABULARY for token in tokens)
