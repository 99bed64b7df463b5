"""VITS: from text to speech."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.audio import (
    CouplingFlow,
    DurationPredictor,
    FrameCounts,
    FrameExpansion,
    HiFiGAN,
    StochasticDurationPredictor,
)
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import ConvolutionalFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.positions import ShawRelative
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation

# Kim et al., section 3.2, and the published configurations.
SIZES = {"base": Size(num_layers=6, hidden_dim=192, num_heads=2, intermediate_dim=768)}


def VITS(
    size: str | Size = "base",
    vocabulary_size: int = 178,
    *,
    latent_dim: int = 192,
    num_speakers: int = 1,
    speaker_dim: int = 256,
    window: int = 4,
    kernel_size: int = 3,
    duration_predictor: StochasticDurationPredictor | DurationPredictor | None = None,
    num_flows: int = 4,
    flow: CouplingFlow | None = None,
    decoder: HiFiGAN | None = None,
    noise_scale: float = 0.667,
    activation: Activation = "relu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    use_bias: bool = True,
    layer_norm_epsilon: float = 1e-5,
    name: str = "vits",
) -> keras.Model:
    """VITS, from token ids and noise to samples: a text encoder, durations, a flow and the generator of HiFi-GAN.

    It is the model of synthesis, without the posterior encoder and the losses of training. All randomness is in its inputs,
    so that equal inputs give equal speech in every runtime. `tasks.SpeechSynthesizer` speaks texts with it.

    Args:
        size: "base", or a `Size` of the text encoder.
        vocabulary_size: int. Letters or phonemes V. Default 178, as for English phonemes.
        latent_dim: even int. Channels C of the latent frames. Default 192.
        num_speakers: int >= 1. With several, the model has the input "speaker".
        speaker_dim: int >= 1. Width of the vectors of several speakers. Default 256.
        window: int >= 1. Tokens on each side whose distance a token knows: see `positions.ShawRelative`. Default 4.
        kernel_size: int >= 1. Of the convolutions of the feed-forward. Default 3.
        duration_predictor: `audio.StochasticDurationPredictor` or `audio.DurationPredictor` to copy; None for the first.
        num_flows: int >= 1. Coupling layers. Default 4.
        flow: `audio.CouplingFlow` to copy; None for one with the width of the text encoder.
        decoder: `audio.HiFiGAN` to copy; None for that of the paper.
        noise_scale: float >= 0. What the noise of the frames is multiplied by: how much speech varies. Default 0.667.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        use_bias: bool. Whether the projections of attention have biases.
        layer_norm_epsilon: float > 0. Of the norms of the text encoder.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "speaking_rate": float `(B,)`,
        "frame_noise": float `(B, F, C)`, with stochastic durations "duration_noise": float `(B, T, 2)`, with several
        speakers "speaker": int32 `(B,)`} to {"samples": float32 `(B, F · samples of a frame)`, "num_samples": int32 `(B,)`}.
        The speaking rate is above 0; at 2, speech is twice as fast. Noise is standard normal, and has a row for each of at
        most F frames: the end of a longer text is missing, and its "num_samples" are more than the samples.

    Raises:
        ValueError: unknown size name; heads that do not divide the width; an odd `latent_dim`.

    Example:

    >>> from keras_transformer.models import Size
    >>> model = VITS(Size(1, 8, 2, 16), 30, latent_dim=4, num_flows=1, decoder=HiFiGAN(8, (4,), (8,), (3,)))
    >>> inputs = {"token_ids": [[3, 4]], "padding_mask": [[True, True]], "speaking_rate": [1.0]}
    >>> noise = {"frame_noise": keras.random.normal((1, 20, 4)), "duration_noise": keras.random.normal((1, 2, 2))}
    >>> tuple(model({name: ops.array(value) for name, value in (inputs | noise).items()})["samples"].shape)
    (1, 80)

    Reference: Kim et al., Conditional Variational Autoencoder with Adversarial Learning for End-to-End Text-to-Speech,
    arXiv 2106.06103. The durations, the frames and the samples are computed in float32 up to the generator under every
    dtype policy, because durations are rounded.
    """
    size = get_size(size, SIZES)
    durations = clone(duration_predictor or StochasticDurationPredictor(), name="duration_predictor", dtype="float32")
    generator = clone(decoder or HiFiGAN(), name="decoder")
    inputs = _inputs(latent_dim, num_speakers > 1, durations.takes_noise)
    speaker = _speaker_vectors(inputs, num_speakers, speaker_dim)
    rates = {"dropout": dropout, "attention_dropout": attention_dropout, "hidden_dropout": hidden_dropout}
    encoder = _TextEncoder(size, window, kernel_size, activation, use_bias, layer_norm_epsilon, **rates)
    x = encoder.encode(inputs, vocabulary_size)
    counts = _frame_counts(durations, x, inputs, speaker)
    expand = FrameExpansion(noise_scale, dtype="float32", name="frames")
    latents, frame_mask = expand(keras.layers.Dense(2 * latent_dim, name="prior")(x), counts, inputs["frame_noise"])
    flow = CouplingFlow(size.hidden_dim) if flow is None else flow
    for index in reversed(range(num_flows)):
        latents = clone(flow, name=f"flow_{index}")(latents, padding_mask=frame_mask, **speaker)
    samples = generator(latents, padding_mask=frame_mask, **speaker)
    outputs = {"samples": keras.layers.Identity(dtype="float32", name="samples")(samples)}
    outputs["num_samples"] = ops.sum(counts, axis=1) * generator.samples_per_frame
    return keras.Model(inputs, outputs, name=name)


def _inputs(latent_dim: int, has_speakers: bool, takes_noise: bool) -> dict[str, keras.KerasTensor]:
    """The symbolic inputs by name."""
    inputs = {
        "token_ids": token_input(),
        "padding_mask": padding_input(),
        "speaking_rate": keras.Input((), name="speaking_rate"),
        "frame_noise": keras.Input((None, latent_dim), name="frame_noise"),
    }
    if has_speakers:
        inputs["speaker"] = keras.Input((), dtype="int32", name="speaker")
    if takes_noise:
        inputs["duration_noise"] = keras.Input((None, 2), name="duration_noise")
    return inputs


def _speaker_vectors(
    inputs: dict[str, keras.KerasTensor], num_speakers: int, speaker_dim: int
) -> dict[str, keras.KerasTensor]:
    """The vectors of the speakers, as an argument of the layers that take one; none for a single speaker."""
    if num_speakers == 1:
        return {}
    embedding = keras.layers.Embedding(num_speakers, speaker_dim, name="speaker_embedding")
    return {"speaker": embedding(inputs["speaker"])}


class _TextEncoder(NamedTuple):
    """The text encoder: what its blocks are made of."""

    size: Size
    window: int
    kernel_size: int
    activation: Activation
    use_bias: bool
    layer_norm_epsilon: float
    dropout: float
    attention_dropout: float
    hidden_dropout: float

    def encode(self, inputs: dict[str, keras.KerasTensor], vocabulary_size: int) -> keras.KerasTensor:
        """Returns the encoded tokens `(B, T, D)`."""
        width = self.size.hidden_dim
        x = keras.layers.Embedding(vocabulary_size, width, name="token_embedding")(inputs["token_ids"])
        x = keras.layers.Rescaling(width**0.5, name="embedding_scale")(x)
        for index in range(self.size.num_layers):
            x = self._block(index)(x, padding_mask=inputs["padding_mask"])
        return x

    def _block(self, index: int) -> EncoderBlock:
        size = self.size
        attention = MultiHeadAttention(
            size.num_heads,
            size.hidden_dim // size.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            position=ShawRelative(self.window, clips=False, name="position"),
            name="self_attention",
        )
        feedforward = ConvolutionalFeedForward(
            size.intermediate_dim, self.kernel_size, self.activation, dropout=self.hidden_dropout, name="feedforward"
        )
        return EncoderBlock(
            attention,
            feedforward,
            residual="post",
            norm=LayerNormalization(epsilon=self.layer_norm_epsilon),
            dropout=self.dropout,
            name=f"encoder_block_{index}",
        )


def _frame_counts(
    durations: keras.layers.Layer,
    x: keras.KerasTensor,
    inputs: dict[str, keras.KerasTensor],
    speaker: dict[str, keras.KerasTensor],
) -> keras.KerasTensor:
    """The number of frames of each token, by its predicted duration and the speaking rate."""
    mask = inputs["padding_mask"]
    noise = {"noise": inputs["duration_noise"]} if durations.takes_noise else {}
    log_durations = durations(x, padding_mask=mask, **noise, **speaker)
    return FrameCounts(dtype="float32", name="frame_counts")(log_durations, inputs["speaking_rate"], padding_mask=mask)
