"""Training of a language model on the labeled tokens of packed rows."""

from __future__ import annotations

import math

import keras
from keras import ops

from keras_transformer.backend.optional_inputs import with_optional_inputs
from keras_transformer.blocks.traced_once import TracedOnce
from keras_transformer.models import packed as packed_backbone
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.distribution.replicas import mean_of_replicas
from keras_transformer.training.losses.cross_entropy import split_ignored, token_weights
from keras_transformer.training.losses.labeled_loss import head_layer, labeled_loss
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import Shape, Tensor, Tensors

# Of a chunk of which the head is trained: more tokens make its products no faster.
_MOST_TOKENS = 1024
_MOST_LOGITS = 5 * 2**23  # 160 MiB in float32.
_FEWEST_TOKENS = 128


class NextTokenTrainer(TracedOnce, keras.Model):
    """Trains a language model without the logits of a whole batch: only labeled tokens pass the head, in chunks.

    The loss is that of `MaskedCrossentropy`: the mean over the labeled tokens of a batch. Fine-tuning on the answers of
    dialogues labels a part of the tokens, and a checkpoint has a vocabulary of 50,000 to 250,000: there the head needs most
    of the memory and much of the time. The weights are those of the language model, which is ready for use after training.

    Args:
        language_model: `tasks.LanguageModel` of a decoder, with or without adapters.
        packed: bool. Whether rows hold several documents, none of which sees another: the batches of `data.pack`. Default
            True; False for inputs "token_ids" and "padding_mask".
        chunk_size: int >= 1. The number of tokens whose logits are in memory at a time. Default None: equal parts of the
            batch of up to 128 tokens if the head is frozen, as with adapters. If it is trained, each chunk also adds a
            gradient of its size: then of up to 1,024 tokens, whose logits have at most 160 MiB.
        ignore_id: int. Label of tokens that are not counted. Default -100.
        name: str.

    Call arguments:
        inputs: dict of "token_ids" int32 `(B, T)` and "padding_mask" bool `(B, T)`, which may be left out for rows without
            padding; if packed, also "segment_ids" and "positions", int32 `(B, T)`.

    Returns:
        The output of the backbone, `(B, T, D)`.

    Raises:
        ValueError: an encoder-decoder; `chunk_size` below 1; a backbone that cannot be packed.

    Compile it with an optimizer and without a loss. `fit` and `evaluate` report "loss", whose mean over batches gives each
    row the same weight, and "token_loss", whose mean over an epoch gives each labeled token the same weight.

    Example:

    >>> from keras_transformer import data, models, tasks
    >>> model = tasks.LanguageModel(models.Llama(models.Size(1, 8, 2, 16), vocabulary_size=10))
    >>> trainer = NextTokenTrainer(model, chunk_size=4)
    >>> trainer.compile("adam")
    >>> batches = data.pack([[1, 2, 3], [4, 5, 6, 7]], sequence_length=8, batch_size=1)
    >>> sorted(trainer.evaluate(batches, verbose=0, return_dict=True))
    ['loss', 'token_loss']

    Reference: see `chunked_crossentropy`, `linear_crossentropy` and `models.packed`.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        *,
        packed: bool = True,
        chunk_size: int | None = None,
        ignore_id: int = IGNORE_ID,
        name: str = "next_token_trainer",
    ) -> None:
        super().__init__(name=name)
        if language_model.is_encoder_decoder:
            raise ValueError(f"{language_model.name!r} has an encoder: train it with fit and MaskedCrossentropy.")
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1. Received: {chunk_size}")
        self.language_model = language_model
        self.chunk_size = chunk_size
        self.ignore_id = ignore_id
        self._packed = packed_backbone(language_model.backbone) if packed else language_model.backbone
        self._token_loss = keras.metrics.Mean(name="token_loss")

    def build(self, input_shape: Shape) -> None:
        """Does nothing: the parts are built."""

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        return self._packed(with_optional_inputs(self._packed, inputs), training=training)

    def compute_loss(
        self,
        x: Tensors | None = None,
        y: Tensor | None = None,
        y_pred: keras.KerasTensor = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the mean cross-entropy of the labeled tokens, plus the losses of layers, such as routers."""
        del x
        labels, counted = split_ignored(y, self.ignore_id)
        weights = token_weights(counted, sample_weight)
        hidden, labels, weights = (ops.reshape(x, (-1, *x.shape[2:])) for x in (y_pred, labels, weights))
        chunk_size = self._tokens_at_a_time(hidden.shape[0])
        total = labeled_loss(self.language_model, hidden, labels, weights, chunk_size, training)
        tokens = ops.sum(weights)
        mean = total / ops.maximum(tokens, keras.config.epsilon())
        self._token_loss.update_state(ops.stop_gradient(mean), sample_weight=tokens)
        mean = mean_of_replicas(mean, weights)
        return mean + sum(self.losses) if self.losses else mean

    def _tokens_at_a_time(self, tokens: int | None) -> int:
        """Returns the tokens of a chunk, of a batch of so many, or of an unknown number."""
        if self.chunk_size is not None:
            return self.chunk_size
        most = _FEWEST_TOKENS
        if head_layer(self.language_model).trainable_variables:
            most = max(most, min(_MOST_TOKENS, _MOST_LOGITS // self.language_model.vocabulary_size // most * most))
        return math.ceil(tokens / math.ceil(tokens / most)) if tokens else most
