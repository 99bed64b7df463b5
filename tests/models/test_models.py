"""Parameter counts, and what each architecture computes."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, positions, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.models.text.decoders import decoder
from keras_transformer.models.text.encoder_decoders import transformer
from keras_transformer.models.text.encoders import encoder
from keras_transformer.models.vision import vit

SMALL = models.Size(num_layers=2, hidden_dim=16, num_heads=4, intermediate_dim=32)


@pytest.fixture(scope="module")
def causal():
    return tasks.LanguageModel(models.Decoder(SMALL, vocabulary_size=11, position="rotary"))


@pytest.fixture(scope="module")
def translator():
    return tasks.LanguageModel(models.Transformer(SMALL, vocabulary_size=11))


# With a head of 1,000 classes at 224 x 224, as published with the weights of DeiT (Ti, S) and ViT (B, L; H has patch 14).
VIT_PARAMETERS = {"Ti": 5_717_416, "S": 22_050_664, "B": 86_567_656, "L": 304_326_632, "H": 632_045_800}


def test_every_vit_size_is_pinned():
    assert set(VIT_PARAMETERS) == set(vit.SIZES)


@pytest.mark.parametrize("size", ["Ti", "S", "B"])
def test_vit_parameters(size):
    model = tasks.ImageClassifier(models.ViT(size), num_classes=1000)
    assert model.count_params() == VIT_PARAMETERS[size]


@pytest.mark.parametrize("size, patch", [("L", 16), ("H", 14)])
def test_vit_parameters_of_large_sizes_by_one_block(size, patch):
    """Counted from a model of one block: the large ones do not fit a test."""
    full = vit.SIZES[size]
    none, one = (
        tasks.ImageClassifier(models.ViT(full._replace(num_layers=n), patch_size=patch), 1000).count_params()
        for n in (0, 1)
    )
    assert none + (one - none) * full.num_layers == VIT_PARAMETERS[size]


def stack_parameters(size, attentions, norms):
    """Of one block: attentions (four projections with biases), one feed-forward, norms."""
    d, f = size.hidden_dim, size.intermediate_dim
    return attentions * 4 * (d * d + d) + 2 * d * f + d + f + norms * 2 * d


@pytest.mark.parametrize("name, size", transformer.SIZES.items())
def test_transformer_parameters(name, size):
    """From the measures of table 3: base about 63 M with one table of 37,000 (the paper says 65), big about 214 (213)."""
    blocks = size.num_layers * (stack_parameters(size, 1, 2) + stack_parameters(size, 2, 3))
    model = models.Transformer(name)
    assert model.count_params() == 37000 * size.hidden_dim + blocks
    assert abs(model.count_params() / {"base": 65e6, "big": 213e6}[name] - 1) < 0.04


def test_decoder_small_is_gpt_2():
    """124,439,808 parameters, as published with GPT-2 small."""
    model = models.Decoder("small", vocabulary_size=50257)
    assert model.count_params() == 124_439_808


def test_encoder_base_counts():
    size = encoder.SIZES["base"]
    expected = (30522 + 512) * size.hidden_dim + size.num_layers * stack_parameters(size, 1, 2) + 2 * size.hidden_dim
    assert models.Encoder("base", vocabulary_size=30522).count_params() == expected


def test_decoder_sizes_have_heads_of_64():
    assert {size.hidden_dim // size.num_heads for size in decoder.SIZES.values()} == {64}


def batch(*lengths, names=("token_ids", "padding_mask"), seed=0):
    longest = max(lengths)
    ids = np.random.default_rng(seed).integers(1, 11, (len(lengths), longest))
    return {names[0]: ids, names[1]: np.arange(longest) < np.array(lengths)[:, None]}


def test_decoder_is_causal_and_ignores_padding(causal):
    inputs = batch(5, 3)
    logits = np.asarray(causal(inputs))
    changed = {**inputs, "token_ids": inputs["token_ids"].copy()}
    changed["token_ids"][0, 4] = (changed["token_ids"][0, 4] + 1) % 11
    changed["token_ids"][1, 3:] = 7
    after = np.asarray(causal(changed))
    np.testing.assert_allclose(after[0, :4], logits[0, :4], atol=1e-5)
    np.testing.assert_allclose(after[1, :3], logits[1, :3], atol=1e-5)
    assert np.abs(after[0, 4] - logits[0, 4]).max() > 1e-4


def test_tied_logits_are_products_with_the_embeddings(causal):
    inputs = batch(4, 4)
    backbone_output = causal.get_layer("final_norm").output
    hidden = keras.Model(causal.input, backbone_output)(inputs)
    table = np.asarray(causal.get_layer("token_embedding").embeddings)
    np.testing.assert_allclose(causal(inputs), np.asarray(hidden) @ table.T, atol=1e-4)


def test_untied_head_has_weights_of_its_own():
    backbone = models.Decoder(SMALL, vocabulary_size=11)
    untied = tasks.LanguageModel(backbone, tie_embeddings=False)
    assert untied.count_params() == backbone.count_params() + 11 * 16


def seq2seq(source=(5, 3), target=(4, 2)):
    return {
        **batch(*source, names=("source_token_ids", "source_padding_mask")),
        **batch(*target, names=("target_token_ids", "target_padding_mask"), seed=1),
    }


def test_transformer_reads_the_source_and_not_its_padding(translator):
    inputs = seq2seq()
    logits = np.asarray(translator(inputs))
    padded = {**inputs, "source_token_ids": inputs["source_token_ids"].copy()}
    padded["source_token_ids"][1, 3:] = 9
    np.testing.assert_allclose(translator(padded), logits, atol=1e-5)
    padded["source_token_ids"][1, 0] = (padded["source_token_ids"][1, 0] + 1) % 11
    assert np.abs(np.asarray(translator(padded)) - logits)[1].max() > 1e-3


def test_transformer_target_is_causal(translator):
    inputs = seq2seq()
    logits = np.asarray(translator(inputs))
    inputs["target_token_ids"][0, 3] = (inputs["target_token_ids"][0, 3] + 1) % 11
    np.testing.assert_allclose(np.asarray(translator(inputs))[0, :3], logits[0, :3], atol=1e-5)


def test_transformer_scales_embeddings_by_the_root_of_the_width(translator):
    embedding, scale = translator.get_layer("token_embedding"), translator.get_layer("source_scale")
    ids = np.array([[1, 2]])
    np.testing.assert_allclose(scale(embedding(ids)), np.asarray(embedding.embeddings)[[[1, 2]]] * 4, rtol=1e-6)


def test_untied_transformer_has_two_vocabularies():
    model = models.Transformer(SMALL, 11, target_vocabulary_size=7, tie_embeddings=False)
    assert tasks.LanguageModel(model).output_shape[-1] == 7
    with pytest.raises(ValueError, match="one vocabulary"):
        models.Transformer(SMALL, 11, target_vocabulary_size=7)


def test_pre_norm_ends_with_a_norm_and_post_norm_does_not():
    names = {
        residual: {layer.name for layer in models.Encoder(SMALL, 11, residual=residual).layers}
        for residual in ("pre", "post", "sandwich", "sublayer")
    }
    assert {residual: "final_norm" in found for residual, found in names.items()} == {
        "pre": True,
        "post": False,
        "sandwich": True,
        "sublayer": True,
    }


def test_attention_template_reaches_every_block():
    attention = MultiHeadAttention(4, 4, num_key_value_heads=1, position="rotary")
    model = models.Decoder(SMALL, 11, position=None, attention=attention, feedforward="gated", norm="rms_norm")
    mixers = [model.get_layer(f"decoder_block_{index}").mixer for index in range(2)]
    assert [mixer.num_key_value_heads for mixer in mixers] == [1, 1]
    assert mixers[0] is not mixers[1]
    assert mixers[0].position is not mixers[1].position


def _attention(model):
    """Mechanism of each attention of a model, by name."""
    layers = (layer for layer in model._flatten_layers() if isinstance(layer, MultiHeadAttention))
    return {layer.path.rsplit("/", 1)[-1]: type(layer.mechanism).__name__ for layer in layers}


def test_attention_may_be_the_name_of_a_mechanism():
    model = models.Encoder(SMALL, vocabulary_size=11, attention="local")
    assert _attention(model) == {"self_attention": "LocalAttention"}
    with pytest.raises(ValueError, match="softmax"):
        models.Encoder(SMALL, vocabulary_size=11, attention="no_such")


def test_cross_attention_takes_a_mechanism_that_serves_it():
    expected = {"self_attention": "LocalAttention", "cross_attention": "SoftmaxAttention"}
    for attention in ("local", MultiHeadAttention(4, 4, mechanism="local")):
        assert _attention(models.Transformer(SMALL, 11, attention=attention)) == expected


def test_vit_of_another_image_size_takes_the_weights():
    small = models.ViT(SMALL, patch_size=4, image_size=8)
    large = models.ViT(SMALL, patch_size=4, image_size=16, grid_size=2)
    large.set_weights(small.get_weights())
    assert large.output_shape == (None, 17, 16)


@pytest.mark.parametrize(
    "build", [models.ViT, lambda size: models.Encoder(size, 11), lambda size: models.Transformer(size)]
)
def test_unknown_size_lists_the_valid_ones(build):
    with pytest.raises(ValueError, match="base|Ti"):
        build("no_such")


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="num_heads must divide"):
        models.Encoder(models.Size(1, 10, 3, 8), 11)


def test_blocks_share_a_relative_bias_as_in_t5(tmp_path):
    """One table of 32 buckets for two heads, in any number of blocks, which comes back from a file as one."""
    position = positions.RelativeBias()
    model = models.Encoder(models.Size(3, 16, 2, 32), 50, position=position)
    shapes = [tuple(weight.shape) for weight in model.trainable_weights]
    assert shapes.count((32, 2)) == 1
    x = {"token_ids": np.arange(6)[None], "padding_mask": np.ones((1, 6), bool)}
    expected = model(x)
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras")
    assert len(again.trainable_weights) == len(shapes)
    np.testing.assert_allclose(again(x), expected, atol=1e-6)
    tables = [weight for weight in again.trainable_weights if tuple(weight.shape) == (32, 2)]
    tables[0].assign_add(np.random.default_rng(0).normal(size=(32, 2)))
    first = again.get_layer("encoder_block_0").mixer.position
    assert all(again.get_layer(f"encoder_block_{i}").mixer.position is first for i in range(3))


def test_models_do_not_share_the_position_they_are_given():
    position = positions.RelativeBias()
    first, second = (models.Encoder(models.Size(1, 16, 2, 32), 50, position=position) for _ in range(2))
    first, second = (model.get_layer("encoder_block_0").mixer.position for model in (first, second))
    assert first is not second
