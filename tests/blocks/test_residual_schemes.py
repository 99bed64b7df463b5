"""DeepNorm, ReZero and ResiDual against reference implementations, and in stacks."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import (
    DecoderBlock,
    DeepNormResidual,
    EncoderBlock,
    JoinStreams,
    OpenStreams,
    ResiDualResidual,
)
from keras_transformer.feedforward import DenseFeedForward, GatedFeedForward, MixtureOfExperts
from keras_transformer.utils.serialization import load_model

DATA = Path(__file__).parents[1] / "data"
WIDTH = 8
SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=32)


def tokens(length=5, seed=0):
    return np.random.default_rng(seed).normal(size=(2, length, WIDTH)).astype("float32")


def fill(block, params, norms, dense):
    """The weights of a fairseq layer: kernels `(out, in)`."""
    heads, width = block.mixer.num_heads, params["self_attn.q_proj.weight"].shape[0]

    def split(name, layer):
        layer.kernel.assign(params[f"{name}.weight"].T.reshape(width, heads, -1))
        layer.bias.assign(params[f"{name}.bias"].reshape(heads, -1))

    split("self_attn.q_proj", block.mixer.query_dense)
    split("self_attn.k_proj", block.mixer.key_dense)
    split("self_attn.v_proj", block.mixer.value_dense)
    block.mixer.output_dense.kernel.assign(params["self_attn.out_proj.weight"].T.reshape(heads, -1, width))
    block.mixer.output_dense.bias.assign(params["self_attn.out_proj.bias"])
    block.feedforward.set_weights([params[f"{name}.{part}"].T for name in dense for part in ("weight", "bias")])
    for residual, name in zip((block.mixer_residual, block.feedforward_residual), norms, strict=True):
        residual.norms["norm"].set_weights([params[f"{name}.weight"], params[f"{name}.bias"]])


def params_of(golden, prefix):
    return {name.removeprefix(prefix): golden[name] for name in golden.files if name.startswith(prefix)}


def block_of(residual, activation="relu"):
    norm = keras.layers.LayerNormalization(epsilon=1e-5)
    attention, feed_forward = MultiHeadAttention(2, 8), DenseFeedForward(32, activation=activation)
    return EncoderBlock(attention, feed_forward, residual=residual(norm), norm=norm)


def test_deepnorm_layer():
    golden = np.load(DATA / "deepnorm_encoder_layer.npz")
    x, mask = golden["inputs/x"], ~golden["inputs/padding_mask"]
    block = block_of(lambda norm: DeepNormResidual.of_stack(6, norm=norm))
    block.build(x.shape)
    norms = ("self_attn_layer_norm", "final_layer_norm")
    fill(block, params_of(golden, "params/"), norms, ("ffn.fc1", "ffn.fc2"))
    np.testing.assert_allclose(np.asarray(block(x, padding_mask=mask))[mask], golden["outputs/y"][mask], atol=1e-5)


def test_deepnorm_constants():
    """Those of the reference, but for the encoder's β in an encoder-decoder, where the paper has 0.87 for its 1 / 1.15."""
    for encoder, decoder, *constants in np.load(DATA / "deepnorm_encoder_layer.npz")["outputs/constants"]:
        residuals = (
            DeepNormResidual.of_stack(encoder),
            DeepNormResidual.of_stack(decoder),
            DeepNormResidual.of_encoder(encoder, decoder),
            DeepNormResidual.of_decoder(decoder),
        )
        alphas, divisors = constants[::2], constants[1::2]
        np.testing.assert_allclose([residual.alpha for residual in residuals], alphas, rtol=1e-6)
        betas = [residual.beta for residual in residuals]
        np.testing.assert_allclose(np.delete(betas, 2), 1 / np.delete(divisors, 2), rtol=1e-6)
        np.testing.assert_allclose(betas[2], 0.87 * (encoder**4 * decoder) ** (-1 / 16), rtol=1e-6)


def kernels(residual, feed_forward):
    ones = MultiHeadAttention(2, 4, kernel_initializer="ones", use_gate=True)
    block = DecoderBlock(
        ones, feed_forward, cross_attention=MultiHeadAttention(2, 4, kernel_initializer="ones"), residual=residual
    )
    block.build((None, None, WIDTH), (None, None, WIDTH))
    found = {}
    for weight in block.trainable_weights:
        if weight.name.endswith("kernel"):
            found["/".join(weight.path.split("/")[-2:])] = np.unique(np.asarray(weight)).tolist()
    return found


@pytest.mark.parametrize("feed_forward", [DenseFeedForward, GatedFeedForward, MixtureOfExperts])
def test_deepnorm_starts_values_and_outputs_small(feed_forward):
    found = kernels(DeepNormResidual(alpha=2.0, beta=0.25), feed_forward(8, kernel_initializer="ones"))
    small = {name for name, values in found.items() if values == [0.25]}
    whole = {name for name, values in found.items() if values == [1.0]}
    assert {"value/kernel", "attention_output/kernel"} <= small
    assert {"query/kernel", "key/kernel", "gate/kernel"} <= whole
    assert {name.split("/")[-1].split("_")[0] if "experts" in name else name.split("/")[0] for name in small} >= {
        "hidden",
        "output",
    }
    assert not any("gate" in name or "router" in name for name in small)


def test_deepnorm_leaves_what_is_built_alone():
    feed_forward = DenseFeedForward(8, kernel_initializer="ones")
    feed_forward.build((None, None, WIDTH))
    block = EncoderBlock(MultiHeadAttention(2, 4), feed_forward, residual=DeepNormResidual(alpha=2.0, beta=0.25))
    block.build((None, None, WIDTH))
    assert np.all(np.asarray(feed_forward.weights[0]) == 1)


def test_deepnorm_starts_small_where_keras_puts_values_off():
    feed_forward = DenseFeedForward(8, kernel_initializer="ones")
    block = EncoderBlock(MultiHeadAttention(2, 4), feed_forward, residual=DeepNormResidual(alpha=2.0, beta=0.25))
    with keras.StatelessScope():
        block.build((None, None, WIDTH))
    assert np.all(np.asarray(feed_forward.weights[0]) == 0.25)


def test_deepnorm_of_a_block_alone_asks_for_its_depth():
    with pytest.raises(ValueError, match="of_stack"):
        EncoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(8), residual="deepnorm")


def test_models_know_their_depth():
    alphas = [block.mixer_residual.alpha for block in blocks(models.Encoder(SIZE, 11, residual="deepnorm"))]
    assert alphas == [4**0.25] * 2
    model = models.Transformer(models.Size(3, 16, 2, 32), 11, residual="deepnorm")
    encoder, decoder = model.get_layer("encoder_block_0"), model.get_layer("decoder_block_0")
    assert encoder.mixer_residual.alpha == 0.81 * 3 ** (5 / 16)
    assert decoder.cross_attention_residual.beta == 36**-0.25


def blocks(model):
    return [layer for layer in model.layers if isinstance(layer, (EncoderBlock, DecoderBlock))]


def test_rezero_starts_as_the_identity():
    block = EncoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(8), residual="rezero")
    np.testing.assert_array_equal(block(tokens()), tokens())
    block.mixer_residual.scale.assign(0.5)
    block.feedforward_residual.scale.assign(-2.0)
    x = tokens() + 0.5 * np.asarray(block.mixer(tokens(), tokens()))
    np.testing.assert_allclose(block(tokens()), x - 2 * np.asarray(block.feedforward(x)), atol=1e-5)


def residual_stack():
    golden = np.load(DATA / "residual_encoder.npz")
    stack = [block_of(lambda norm: ResiDualResidual(norm=norm)) for _ in range(2)]
    for index, block in enumerate(stack):
        block.build((2, 10, 2, 16))
        norms = ("self_attn_layer_norm", "final_layer_norm")
        fill(block, params_of(golden, f"params/layers.{index}."), norms, ("fc1", "fc2"))
    return stack, golden


def test_residual_streams():
    stack, golden = residual_stack()
    first, second = (np.swapaxes(golden[f"inputs/{name}"], 0, 1) for name in ("x", "res"))
    mask = ~golden["inputs/padding_mask"]
    x = np.stack([first, second], axis=2)
    np.testing.assert_array_equal(OpenStreams()(first), x)
    for index, block in enumerate(stack):
        x = np.asarray(block(x, padding_mask=mask))
        for stream, name in enumerate(("x", "res")):
            expected = np.swapaxes(golden[f"outputs/{name}_{index}"], 0, 1)
            np.testing.assert_allclose(x[:, :, stream][mask], expected[mask], atol=2e-5)


def test_residual_ends_with_the_norm_of_the_sum():
    streams = np.random.default_rng(0).normal(size=(2, 3, 2, WIDTH))
    layer = JoinStreams()
    second = streams[:, :, 1]
    normalized = (second - second.mean(-1, keepdims=True)) / np.sqrt(second.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(layer(streams), streams[:, :, 0] + normalized, atol=1e-5)


def test_a_residual_block_alone_is_a_stack_of_one():
    block = EncoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(8), residual="residual")
    alone = block(tokens())
    inside = EncoderBlock(block.mixer, block.feedforward, residual="residual")
    opened = inside(OpenStreams()(tokens()))
    np.testing.assert_allclose(alone, JoinStreams()(opened), atol=1e-5)


def test_residual_needs_streams_to_join():
    with pytest.raises(ValueError, match="OpenStreams"):
        models.TransformerXL(SIZE, 11, segment_length=4, memory_length=4, residual="residual")


MODELS = {"encoder": models.Encoder, "decoder": models.Decoder, "transformer": models.Transformer}


@pytest.mark.slow
@pytest.mark.parametrize("residual", ["deepnorm", "rezero", "residual"])
@pytest.mark.parametrize("name", MODELS)
def test_stacks_are_their_blocks_and_are_saved(name, residual, tmp_path):
    model = MODELS[name](SIZE, 11, residual=residual)
    rng = np.random.default_rng(2)
    for weight in model.weights:
        weight.assign(rng.normal(0.1, 0.3, weight.shape))
    inputs = {
        tensor.name: np.ones((2, 4), "bool") if "mask" in tensor.name else np.arange(8, dtype="int32").reshape(2, 4)
        for tensor in keras.tree.flatten(model.input)
    }
    output = np.asarray(model(inputs))
    names = {layer.name for layer in model.layers}
    assert ("open_streams" in str(names)) == (residual == "residual") == ("final_norm" in str(names))
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(inputs), output)


@pytest.mark.parametrize("residual", ["deepnorm", "rezero", "residual"])
def test_steps_are_the_whole(residual):
    model = models.Decoder(SIZE, 11, residual=residual, position="rotary")
    for weight in model.weights:
        weight.assign(np.random.default_rng(2).normal(0.1, 0.3, weight.shape))
    ids = np.random.default_rng(1).integers(0, 11, (2, 6)).astype("int32")
    whole = model({"token_ids": ids, "padding_mask": np.ones((2, 6), bool)})
    steps = models.Stepwise(model)
    cache, outputs = steps.init_cache(2, 6), []
    for start, end in ((0, 3), (3, 4), (4, 6)):
        output, cache = steps(ids[:, start:end], cache, start)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, 1), whole, atol=1e-5)


def first_gradient(residual, num_layers):
    """The norm of the gradient of the first block's value kernel, as an encoder starts."""
    keras.utils.set_random_seed(3)
    size = models.Size(num_layers, WIDTH, 1, 16)
    model = models.Encoder(size, 11, residual=residual, position=None, activation="relu")
    inputs = {"token_ids": np.arange(8, dtype="int32").reshape(2, 4), "padding_mask": np.ones((2, 4), bool)}
    target = np.random.default_rng(0).normal(size=(2, 4, WIDTH)).astype("float32")
    kernel = blocks(model)[0].mixer.value_dense.kernel
    start = np.asarray(kernel)
    model.compile(keras.optimizers.SGD(1e-2), loss="mse", run_eagerly=True)
    model.train_on_batch(inputs, target)
    return np.linalg.norm(np.asarray(kernel) - start)


@pytest.mark.exhaustive
def test_with_deepnorm_the_first_block_learns_alike_at_any_depth():
    post, deep = ([first_gradient(residual, depth) for depth in (16, 40)] for residual in ("post", "deepnorm"))
    assert post[1] < 0.2 * post[0]
    assert 0.5 * deep[0] < deep[1] < 2 * deep[0]
