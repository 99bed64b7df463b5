"""Decoders of other projects: published parameter counts, and the options that they are made of."""

import math

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import load_model, models, tasks
from keras_transformer.attention import LocalAttention, MultiHeadAttention
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.checkpoints.transfers import weights_of
from keras_transformer.models.building.rotary_attention import GroupedSize
from keras_transformer.models.text.decoders import bloom, gemma, gemma2, gemma3, llama, mistral, mixtral, qwen2, qwen3
from keras_transformer.positions import Rotary

SMALL = models.Size(num_layers=3, hidden_dim=16, num_heads=4, intermediate_dim=24)

# As their publishers count them: without the output matrix where it is the table of the embedding.
PARAMETERS = {
    "gpt2": (models.GPT2, "small", {}, 0, 124_439_808),
    "llama-3.2-1b": (models.Llama, "3.2-1B", {"vocabulary_size": 128256}, 0, 1_235_814_400),
    "mistral-7b": (models.Mistral, "7B", {}, 32000 * 4096, 7_241_732_096),
    "qwen2-0.5b": (models.Qwen2, "0.5B", {}, 0, 494_032_768),
    "qwen3-0.6b": (models.Qwen3, "0.6B", {}, 0, 596_049_920),
    "gemma-2b": (models.Gemma, "2B", {}, 0, 2_506_172_416),
    "gemma-2-2b": (models.Gemma2, "2B", {}, 0, 2_614_341_888),
    "gemma-3-270m": (models.Gemma3, "270M", {}, 0, 268_098_176),
    "bloom-560m": (models.BLOOM, "560M", {}, 0, 559_214_592),
    "mixtral-8x7b": (models.Mixtral, "8x7B", {}, 32000 * 4096, 46_702_792_704),
    "rwkv-4-169m": (models.RWKV, "169M", {"vocabulary_size": 50277}, 50277 * 768, 169_342_464),
}
# Of those that are too deep to be built in a test: counted from models of one and two blocks.
DEEP = {
    "llama-2-7b": (models.Llama, llama.SIZES["2-7B"], {}, 32000 * 4096, 6_738_415_616),
    "llama-2-70b": (models.Llama, llama.SIZES["2-70B"], {}, 32000 * 8192, 68_976_648_192),
    "llama-3-8b": (models.Llama, llama.SIZES["3-8B"], {"vocabulary_size": 128256}, 128256 * 4096, 8_030_261_248),
    "llama-3.2-3b": (models.Llama, llama.SIZES["3.2-3B"], {"vocabulary_size": 128256}, 0, 3_212_749_824),
    "qwen2.5-7b": (models.Qwen2, qwen2.SIZES["7B"], {"vocabulary_size": 152064}, 152064 * 3584, 7_615_616_512),
    "qwen3-8b": (models.Qwen3, qwen3.SIZES["8B"], {}, 151936 * 4096, 8_190_735_360),
    "gemma-7b": (models.Gemma, gemma.SIZES["7B"], {}, 0, 8_537_680_896),
    "gemma-2-9b": (models.Gemma2, gemma2.SIZES["9B"], {}, 0, 9_241_705_984),
    "gemma-2-27b": (models.Gemma2, gemma2.SIZES["27B"], {}, 0, 27_227_128_320),
    "gemma-3-1b": (models.Gemma3, gemma3.SIZES["1B"], {}, 0, 999_885_952),
    "bloom-176b": (models.BLOOM, bloom.SIZES["176B"], {}, 0, 176_247_271_424),
}


def count(model):
    return sum(math.prod(weight.shape) for weight in weights_of(model))


@pytest.mark.parametrize("name", exhaustive_but(PARAMETERS, "gpt2", "qwen2-0.5b", "gemma-3-270m", "rwkv-4-169m"))
def test_published_parameters(name):
    model, size, options, head, expected = PARAMETERS[name]
    with unallocated():
        assert count(model(size, **options)) + head == expected


@pytest.mark.parametrize("name", exhaustive_but(DEEP, "llama-3-8b", "gemma-2-9b", "bloom-176b"))
def test_published_parameters_of_deep_models_by_a_block(name):
    model, size, options, head, expected = DEEP[name]
    if isinstance(size, GroupedSize):
        size, options = size.size, {**options, "num_key_value_heads": size[1], "key_dim": size.key_dim}
    with unallocated():
        one, two = (count(model(size._replace(num_layers=depth), **options)) for depth in (1, 2))
    assert one + (two - one) * (size.num_layers - 1) + head == expected


@pytest.mark.parametrize(
    "sizes", [each.SIZES for each in (llama, mistral, mixtral, qwen2, qwen3, gemma, gemma2, gemma3)]
)
def test_heads_of_named_sizes_go_into_one_another(sizes):
    for grouped in sizes.values():
        assert grouped.size.num_heads % grouped.num_key_value_heads == 0
        assert grouped.key_dim % 2 == 0


def mixers(model):
    return [layer.mixer for layer in model.layers if hasattr(layer, "mixer")]


def test_blocks_take_a_list_of_attentions_in_turn():
    full, local = MultiHeadAttention(4, 4), MultiHeadAttention(4, 4, mechanism=LocalAttention(window=2))
    model = models.Decoder(SMALL, 11, attention=[local, full])
    assert [type(mixer.mechanism).__name__ for mixer in mixers(model)] == [
        "LocalAttention",
        "SoftmaxAttention",
        "LocalAttention",
    ]


def test_gemma_3_turns_by_one_position_in_windows_and_by_another_without():
    model = models.Gemma3(SMALL, 11, num_key_value_heads=2, window=(2, 2, None))
    assert [mixer.position.max_wavelength for mixer in mixers(model)] == [10000.0, 10000.0, 1e6]
    assert [getattr(mixer.mechanism, "window", None) for mixer in mixers(model)] == [2, 2, None]


def test_embeddings_are_scaled_then_normed():
    options = {"position": None, "attention": MultiHeadAttention(4, 4)}
    model = models.Decoder(SMALL, 11, embedding_scale=3.0, embedding_norm=True, **options)
    table = np.asarray(model.get_layer("token_embedding").embeddings, "float64")
    norm = model.get_layer("embedding_norm")
    norm.gamma.assign(np.arange(16.0))
    tokens = np.array([[3, 1, 4]], "int32")
    until = keras.Model(model.input, norm.output)
    x = 3 * table[tokens]
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * np.arange(16)
    np.testing.assert_allclose(until({"token_ids": tokens, "padding_mask": tokens > 0}), expected, atol=1e-4)


def test_saved_and_loaded(tmp_path):
    backbone = models.Gemma3(SMALL, 11, num_key_value_heads=2, window=(2, None), score_soft_cap=1.5)
    model = tasks.LanguageModel(backbone, logit_soft_cap=0.7)
    model.save(tmp_path / "model.keras")
    tokens = np.array([[3, 1, 4, 1, 5]], "int32")
    inputs = {"token_ids": tokens, "padding_mask": tokens > 0}
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(inputs), model(inputs))


def test_generation_ends_where_a_position_does():
    position = Rotary(layout="halves", max_sequence_length=12)
    model = tasks.LanguageModel(models.Llama(SMALL, 11, position=position))
    assert model.max_length == 12


def test_gpt2_with_padding_on_the_left_and_positions_is_the_text_alone():
    size = models.Size(num_layers=2, hidden_dim=8, num_heads=2, intermediate_dim=12)
    model, packed = (models.GPT2(size, 20, max_sequence_length=9, packed=each) for each in (False, True))
    packed.set_weights(model.get_weights())
    tokens = np.array([[5, 6, 7, 8]], "int32")
    alone = model({"token_ids": tokens, "padding_mask": tokens > 0})
    tokens = np.pad(tokens, ((0, 0), (3, 0)))
    inputs = {"token_ids": tokens, "padding_mask": tokens > 0, "segment_ids": (tokens > 0).astype("int32")}
    inputs["positions"] = np.maximum(np.cumsum(tokens > 0, axis=1) - 1, 0).astype("int32")
    np.testing.assert_allclose(packed(inputs)[:, 3:], alone, atol=1e-6)
    counted = model({"token_ids": tokens, "padding_mask": tokens > 0})
    assert np.abs(np.asarray(counted)[:, 3:] - np.asarray(alone)).max() > 1e-3
