"""Next-token prediction and generation, for decoder-only and encoder-decoder backbones."""

import pathlib

import keras
from keras import ops

from keras_transformer.generation import ForeignTokenizerError, Generator
from keras_transformer.models import Stepwise
from keras_transformer.saving import resolve, serializable, serialize
from keras_transformer.tasks.steps import KerasSteps

_EMBEDDING_NAMES = ("target_token_embedding", "token_embedding")


@serializable
class LanguageModel(keras.Model):
    """A backbone with a head over the vocabulary, which trains with `fit` and then generates.

    Args:
        backbone: `keras.Model` to `(B, T, D)`, such as `models.Decoder` or, sequence to sequence, `models.Transformer`.
        tie_embeddings: bool. True: the logits are products with the token embeddings; False: with a matrix of their own.
        tokenizer: a tokenizer of `keras_transformer.text`, with which the model takes text and gives text, or None. It is
            saved with the model.
        start_id: int or None: the token that every text begins with before generation. None: that of the tokenizer in an
            encoder-decoder, no token otherwise.
        end_id: int or None: the token that ends a text. None: that of the tokenizer.
        name: str.

    Call arguments:
        inputs: those of the backbone.

    Returns:
        Logits, float32 `(B, T, V)`, under every dtype policy.

    Raises:
        ValueError: the backbone has no token embedding, or fewer tokens than the tokenizer.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> model = LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> model.output_shape
    (None, None, 50)
    >>> len(model.generate([3, 1, 4], max_new_tokens=5))
    5

    Reference: Press and Wolf, Using the Output Embedding to Improve Language Models, arXiv 1608.05859 (tied embeddings).
    """

    def __init__(
        self,
        backbone,
        *,
        tie_embeddings=True,
        tokenizer=None,
        start_id=None,
        end_id=None,
        name="language_model",
        **kwargs,
    ):
        embedding = _token_embedding(backbone)
        if tokenizer is not None and tokenizer.vocabulary_size > embedding.input_dim:
            raise ForeignTokenizerError(
                f"The tokenizer has {tokenizer.vocabulary_size} tokens; "
                f"{backbone.name!r} was built for {embedding.input_dim}."
            )
        self._embedding = embedding if tie_embeddings else None
        self._head = None if tie_embeddings else keras.layers.Dense(embedding.input_dim, use_bias=False, name="head")
        self._logits = keras.layers.Activation("linear", dtype="float32", name="logits")
        super().__init__(backbone.input, self._to_logits(backbone.output), name=name, **kwargs)
        self.backbone = backbone
        self.tie_embeddings = tie_embeddings
        self.tokenizer = tokenizer
        self.vocabulary_size = embedding.input_dim
        self.is_encoder_decoder = "source_token_ids" in {tensor.name for tensor in self.inputs}
        if tokenizer is not None:
            start_id = tokenizer.start_id if start_id is None and self.is_encoder_decoder else start_id
            end_id = tokenizer.end_id if end_id is None else end_id
        self.start_id = start_id
        self.end_id = end_id
        self._stepwise = None
        self._generator = None

    def _to_logits(self, x):
        return self._logits(self._head(x) if self._embedding is None else self._embedding(x, reverse=True))

    @property
    def max_length(self):
        """int: the most tokens that the positions of the model reach, or None where they have no end."""
        lengths = [getattr(layer, "max_sequence_length", None) for layer in self._flatten_layers()]
        return min((length for length in lengths if length), default=None)

    def generate(self, prompts, **options):
        """Continues prompts, or answers the sources of an encoder-decoder: see `generation.Generator.generate`.

        Args:
            prompts: str or list of str, where the model has a tokenizer; a list of ints, or a list of such lists.
            **options: `max_new_tokens`, `sampler`, `stop`, `seed`, `repetition_penalty`, `batch_size`, `return_scores`.

        Returns:
            For each prompt the text, or the tokens, that follow it.

        Raises:
            GenerationError: what is asked for cannot be had; nothing has run.
        """
        return self.generator().generate(prompts, **options)

    def stream(self, prompt, **options):
        """Like `generate` for one prompt, piece by piece: see `generation.Generator.stream`."""
        return self.generator().stream(prompt, **options)

    def generator(self):
        """The `Generator` of this model; it compiles once for each set of shapes."""
        if self._generator is None or self._generator.steps.jit_compile != self.jit_compile:
            self._generator = Generator(KerasSteps(self), self.tokenizer, self.start_id, self.end_id)
        return self._generator

    @property
    def stepwise(self):
        """The backbone as `models.Stepwise`."""
        if self._stepwise is None:
            self._stepwise = Stepwise(self.backbone)
        return self._stepwise

    @property
    def rewinds(self):
        """bool: whether the cache can go back to an earlier index; one of fixed size cannot."""
        return self.stepwise.rewinds

    @property
    def exits(self):
        """bool: whether `prefill` gives the hidden states of the last token of each prompt alone: see `PrefillExit`."""
        return self.stepwise.exits

    def init_cache(self, batch_size, max_length, dtype=None):
        """An empty cache for `max_length` tokens: dict of named tensors, batch first."""
        return self.stepwise.init_cache(batch_size, max_length, dtype)

    def encode(self, source_token_ids, source_padding_mask):
        """What the decoder reads of the source, to be joined with its cache: see `models.Stepwise.encode`."""
        return self.stepwise.encode(source_token_ids, source_padding_mask)

    def prefill(self, token_ids, lengths, cache):
        """Reads prompts into an empty cache.

        Args:
            token_ids: int32 `(B, T)`, padded on the right.
            lengths: int32 `(B,)`: the tokens of each prompt.
            cache: dict of tensors.

        Returns:
            `(logits, hidden_states, cache)`: float32 `(B, 1, V)`, of the last token of each prompt alone; float32
            `(B, T, D)`, or `(B, 1, D)` where the model `exits`; dict of tensors. The next token of a row is read at
            `cache_index = lengths`.
        """
        return self.extend(token_ids, lengths, cache, ops.zeros((), "int32"))

    def extend(self, token_ids, lengths, cache, cache_index):
        """Like `prefill`, for the next part of each prompt: `cache_index`, int32 `()` or `(B,)`, tokens are read before."""
        hidden, cache = self.stepwise(token_ids, cache, cache_index, lengths, last_only=True)
        last = hidden
        if not self.exits:
            last = ops.take_along_axis(hidden, ops.reshape(lengths, (-1, 1, 1)) - 1, axis=1)
        return self._to_logits(last), ops.cast(hidden, "float32"), cache

    def decode_step(self, token_ids, cache, cache_index):
        """Reads new tokens.

        Args:
            token_ids: int32 `(B, T)`, mostly T = 1.
            cache: dict of tensors.
            cache_index: int32 `(B,)`: how many tokens each row has read before.

        Returns:
            `(logits, hidden_states, cache)`: float32 `(B, T, V)`, float32 `(B, T, D)`, dict of tensors.
        """
        hidden, cache = self.stepwise(token_ids, cache, cache_index)
        return self._to_logits(hidden), ops.cast(hidden, "float32"), cache

    def paged_steps(self, num_blocks, block_size, **options):
        """The model with its cache in the blocks of a pool, for `generation.Engine`: see `tasks.paged_steps.PagedSteps`."""
        from keras_transformer.tasks.paged_steps import PagedSteps

        return PagedSteps(self, num_blocks, block_size, **options)

    def save_assets(self, directory):
        """Keeps the tokenizer in the `.keras` file; Keras calls this."""
        if self.tokenizer is not None:
            self.tokenizer.save(directory)

    def load_assets(self, directory):
        """Takes the tokenizer from the `.keras` file; Keras calls this."""
        from keras_transformer.text import load_tokenizer

        if any(pathlib.Path(directory).iterdir()):
            self.tokenizer = load_tokenizer(directory)

    def get_config(self):
        return {
            "backbone": serialize(self.backbone),
            "tie_embeddings": self.tie_embeddings,
            "start_id": self.start_id,
            "end_id": self.end_id,
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "backbone": resolve(config["backbone"], {}, keras.Model)})


def _token_embedding(backbone):
    layers = {layer.name: layer for layer in backbone.layers}
    for name in _EMBEDDING_NAMES:
        if name in layers:
            return layers[name]
    raise ValueError(f"Backbone {backbone.name!r} has no token embedding ({' or '.join(_EMBEDDING_NAMES)}).")
