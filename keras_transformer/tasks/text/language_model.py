"""Language model: next-token prediction and generation."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.cache.quantized import check_scales
from keras_transformer.attention.partition.bands import take_rows
from keras_transformer.attention.scoring.base import soft_cap
from keras_transformer.backend import keras_private
from keras_transformer.backend.optional_inputs import with_optional_inputs
from keras_transformer.generation import ForeignTokenizerError, GenerationSpec, Generator
from keras_transformer.generation.chat.messages import read_messages
from keras_transformer.generation.chat.template import ChatTemplate
from keras_transformer.generation.prompts import Prompts
from keras_transformer.generation.sampling_defaults import SamplingDefaults
from keras_transformer.models import Stepwise
from keras_transformer.models.transforms.stepwise import source_names
from keras_transformer.tasks.decoding.steps import KerasSteps
from keras_transformer.tasks.heads import check_tied, check_tokens, token_table
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Path, Shape, Tensor, Tensors

if TYPE_CHECKING:
    from keras_transformer.generation.chat.conversation import Conversation
    from keras_transformer.generation.chat.messages import MessagesLike
    from keras_transformer.generation.prompts import PromptsLike
    from keras_transformer.tasks.decoding.paged_steps import PagedSteps
    from keras_transformer.text import Tokenizer

_EMBEDDING_NAMES = ("target_token_embedding", "token_embedding")


@serializable
class LanguageModel(TaskModel):
    """Language model: a backbone with a head over the vocabulary, for training with `fit` and for generation.

    Args:
        backbone: `keras.Model` to `(B, T, D)`, such as `models.Decoder` or, sequence to sequence, `models.Transformer`.
        tie_embeddings: bool. Whether the output projection is the transposed token embedding.
        tokenizer: a tokenizer of `keras_transformer.text`, or None: then prompts and results are token ids. It is
            saved with the model.
        start_id: int or None: the token that precedes generated texts. None: that of the tokenizer in an encoder-decoder, no
            token otherwise.
        end_id: int, or a list of ints: the tokens that end a text. None: that of the tokenizer, or none.
        head_scale: float. Factor of the backbone's output before the head; T5 1.0 uses `1 / √D`. Default 1.
        head_bias: bool. Whether the logits have a learned bias, as in BART and Marian.
        logit_soft_cap: float > 0, or None. c of the soft cap `c · tanh(x / c)` of the logits, as in Gemma 2.
        cache_dtype: "int8", or None for the dtype of the computation. In int8 the cache of keys and values takes a quarter
            of the memory of float32, in Keras and in exported files; each key and value is rounded to its own scale. It can
            be set later: `model.cache_dtype = "int8"`.
        name: str.

    Call arguments:
        inputs: the inputs of the backbone. An optional padding mask may be left out, and then `token_ids` given without a
            dict: `model.fit(token_ids, labels)` trains on rows without padding, whose attention needs no mask.

    Returns:
        Logits, float32 `(B, T, V)`, under every dtype policy.

    Raises:
        ValueError: the backbone has no token embedding, its output is not `(B, T, D)`, its vocabulary is smaller than the
            tokenizer's, or a tied embedding has another width than D.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> model = LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> model.output_shape
    (None, None, 50)
    >>> len(model.generate([3, 1, 4], max_new_tokens=5))
    5

    Reference: Press and Wolf, Using the Output Embedding to Improve Language Models, arXiv 1608.05859 (tied embeddings);
    Gemma Team, Gemma 2, arXiv 2408.00118, section 2 (soft caps).
    """

    def __init__(
        self,
        backbone: keras.Model,
        *,
        tie_embeddings: bool = True,
        tokenizer: Tokenizer | None = None,
        start_id: int | None = None,
        end_id: int | Sequence[int] | None = None,
        head_scale: float = 1.0,
        head_bias: bool = False,
        logit_soft_cap: float | None = None,
        cache_dtype: str | None = None,
        name: str = "language_model",
        **kwargs: object,
    ) -> None:
        embedding = _checked_table(backbone, tie_embeddings, tokenizer)
        self._embedding = embedding if tie_embeddings else None
        self._head: keras.layers.Dense = (
            None if tie_embeddings else keras.layers.Dense(embedding.input_dim, use_bias=False, name="head")
        )
        self._head_scale = None if head_scale == 1 else keras.layers.Rescaling(head_scale, name="head_scale")
        self._logits = _Logits(logit_soft_cap, head_bias, dtype="float32", name="logits")
        super().__init__(backbone.input, self._to_logits(backbone.output), name=name, **kwargs)
        self.backbone = backbone
        self.tie_embeddings = tie_embeddings
        self.head_scale = head_scale
        self.head_bias = head_bias
        self.logit_soft_cap = logit_soft_cap
        self.tokenizer = tokenizer
        self.vocabulary_size = embedding.input_dim
        self._set_source()
        self._set_limits(start_id, end_id)
        # How a server samples where a request does not say; see `SamplingDefaults`.
        self.sampling: SamplingDefaults | None = None
        self._stepwise: Stepwise | None = None
        self._generator: Generator | None = None
        self._cache_dtype: str | None = None
        if cache_dtype is not None:
            self.cache_dtype = cache_dtype

    runs_graph = True  # `call` only adds the optional inputs: see `keras_private.is_graph`.

    def __call__(self, inputs: Tensors, *args: object, **kwargs: object) -> Any:
        return super().__call__(with_optional_inputs(self, inputs), *args, **kwargs)

    def call(self, inputs: Tensors, training: bool | None = None, mask: Tensors | None = None) -> Tensor:
        # Again, because a stateless call, as in training on JAX, begins here.
        return super().call(with_optional_inputs(self, inputs), training=training, mask=mask)

    def _set_source(self) -> None:
        """Sets what is known of the source of an encoder-decoder, and of the prompts."""
        inputs = {tensor.name: tensor for tensor in self.inputs}
        self.source_names = source_names(inputs)
        self.is_encoder_decoder = bool(self.source_names)
        self.takes_prompts = "token_ids" in inputs
        # Shape of a source that is not text, without the batch axis.
        is_text = self.source_names[:1] in ((), ("source_token_ids",))
        self.source_shape = None if is_text else tuple(inputs[self.source_names[0]].shape[1:])

    def _set_limits(self, start_id: int | None, end_id: int | Sequence[int] | None) -> None:
        """Sets the tokens that begin and end a text; None for those of the tokenizer."""
        if self.tokenizer is not None:
            start_id = self.tokenizer.start_id if start_id is None and self.is_encoder_decoder else start_id
            end_id = self.tokenizer.end_id if end_id is None else end_id
        self.start_id = start_id
        self.end_id = tuple(end_id) if isinstance(end_id, (list, tuple)) else end_id

    def _to_logits(self, x):
        x = x if self._head_scale is None else self._head_scale(x)
        return self._logits(self._head(x) if self._embedding is None else self._embedding(x, reverse=True))

    @property
    def max_length(self) -> int | None:
        """int or None: maximum sequence length, limited by the position embeddings; None for no limit."""
        layers = keras_private.flatten_layers(self) if self.source_shape is None else self.stepwise.target_layers
        lengths = [getattr(layer, "max_sequence_length", None) for layer in layers]
        return min((length for length in lengths if length), default=None)

    def generate(self, prompts: PromptsLike, **options: Any) -> Any:
        """Generates text after prompts, or from the sources of an encoder-decoder: see `generation.Generator.generate`.

        Args:
            prompts: str or list of str, if the model has a tokenizer; token ids as a list of ints or a list of such lists;
                an array of features, batched or not, for a model with "features", such as Whisper; `{"images": ...,
                "token_ids": ...}` for a model with "images" and text, such as Kosmos, with prompts in any form above, or
                with "patches" and "patch_grid" in place of "images".
            **options: `max_new_tokens`, `sampler`, `stop`, `seed`, `repetition_penalty`, `batch_size`, `grammar`,
                `return_scores`.

        Returns:
            The generated text or tokens of each prompt.

        Raises:
            GenerationError: the request is not valid for this model.
        """
        return self.generator().generate(prompts, **options)

    def stream(self, prompt: PromptsLike, **options: Any) -> Any:
        """Like `generate` for one prompt, as an iterator of pieces: see `generation.Generator.stream`."""
        return self.generator().stream(prompt, **options)

    def chat(self, messages: MessagesLike, **options: Any) -> Any:
        """Answers the last of some messages, through the chat template of the tokenizer; see `Generator.chat`.

        The messages of a checkpoint with a `vision.PatchesInText` may have images; see its `images_of`.
        """
        if not self._chats_with_images:
            return self.generator().chat(messages, **options)
        return self.generate(self._chat_prompt(messages, options), **options)

    def stream_chat(self, messages: MessagesLike, **options: Any) -> Any:
        """Answers the last of some messages as a stream; see `Generator.stream_chat`, and `chat` for images."""
        if not self._chats_with_images:
            return self.generator().stream_chat(messages, **options)
        return self.stream(self._chat_prompt(messages, options), **options)

    @property
    def _chats_with_images(self):
        return hasattr(getattr(self, "processor", None), "images_of")

    def _chat_prompt(self, messages, options):
        """Returns the prompt of messages with images; takes the options of the template out of those of generation."""
        tools, template = options.pop("tools", None), options.pop("template", None) or {}
        images = self.processor.images_of(read_messages(messages))
        text = ChatTemplate.of(self.tokenizer).render(messages, tools=tools, **template)
        inputs = self.processor([images], [text])
        prompt = Prompts.of_tokens(inputs["token_ids"][0])
        return dataclasses.replace(prompt, source=list(inputs["patches"]), grids=list(inputs["patch_grid"]))

    def conversation(self, messages: Sequence[Mapping[str, object]] = (), **options: Any) -> Conversation:
        """Begins a conversation that keeps its cache from turn to turn; see `Generator.conversation`."""
        return self.generator().conversation(messages, **options)

    def generator(self) -> Generator:
        """Returns the `Generator` of this model, which compiles once per set of shapes."""
        if self._generator is None or self._generator.steps.jit_compile != self.jit_compile:
            self._generator = Generator(KerasSteps(self), self.tokenizer)
        return self._generator

    @property
    def cache_dtype(self) -> str | None:
        """str or None: `"int8"`, or None for the dtype of the computation."""
        return self._cache_dtype

    @cache_dtype.setter
    def cache_dtype(self, dtype: str | None) -> None:
        if dtype not in (None, "int8"):
            raise ValueError(f"cache_dtype must be 'int8' or None. Received: {dtype!r}")
        if dtype is not None:
            check_scales(self.stepwise.init_cache(1, 2, dtype))
        self._cache_dtype, self._generator = dtype, None

    @property
    def stepwise(self) -> Stepwise:
        """The backbone as `models.Stepwise`."""
        if self._stepwise is None:
            self._stepwise = Stepwise(self.backbone)
        return self._stepwise

    @property
    def cache_is_rewindable(self) -> bool:
        """bool: whether the cache supports an earlier `cache_index`; a recurrent state does not."""
        return self.stepwise.cache_is_rewindable

    @property
    def has_prefill_exit(self) -> bool:
        """bool: whether `prefill` returns the hidden state of the last token of each prompt only. See `PrefillExit`."""
        return self.stepwise.has_prefill_exit

    @property
    def generation_spec(self) -> GenerationSpec:
        """`GenerationSpec`: how the model generates, for the decoding loop and for export."""
        return GenerationSpec(**{field.name: getattr(self, field.name) for field in dataclasses.fields(GenerationSpec)})

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns an empty cache for `max_length` tokens: dict of named tensors, batch first."""
        return self.stepwise.init_cache(batch_size, max_length, dtype or self.cache_dtype)

    def encode(self, *source: Tensor) -> Cache:
        """Returns the encoded source, to merge with the cache of the decoder: see `models.Stepwise.encode`."""
        return self.stepwise.encode(*source)

    def prefill(self, token_ids: Tensor, lengths: Tensor, cache: Cache) -> tuple[Tensor, Tensor, Cache]:
        """Reads prompts into an empty cache.

        Args:
            token_ids: int32 `(B, T)`, padded on the right.
            lengths: int32 `(B,)`: number of tokens of each prompt.
            cache: dict of tensors.

        Returns:
            `(logits, hidden_states, cache)`: float32 `(B, 1, V)`, for the last token of each prompt only; float32
            `(B, T, D)`, or `(B, 1, D)` with a `PrefillExit`; dict of tensors. The next token of a row is read at
            `cache_index = lengths`.
        """
        return self.extend(token_ids, lengths, cache, ops.zeros((), "int32"))

    def extend(
        self, token_ids: Tensor, lengths: Tensor, cache: Cache, cache_index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        """Like `prefill` for the next chunk of each prompt, after `cache_index` tokens, int32 `()` or `(B,)`."""
        hidden, cache = self.stepwise(token_ids, cache, cache_index, lengths, last_only=True)
        last = hidden
        if not self.has_prefill_exit:
            last = take_rows(hidden, lengths - 1, 1)
        return self._to_logits(last), ops.cast(hidden, "float32"), cache

    def decode_step(self, token_ids: Tensor, cache: Cache, cache_index: Tensor) -> tuple[Tensor, Tensor, Cache]:
        """Reads new tokens.

        Args:
            token_ids: int32 `(B, T)`, usually T = 1.
            cache: dict of tensors.
            cache_index: int32 `(B,)`: number of tokens that each row has read before.

        Returns:
            `(logits, hidden_states, cache)`: float32 `(B, T, V)`, float32 `(B, T, D)`, dict of tensors.
        """
        hidden, cache = self.stepwise(token_ids, cache, cache_index)
        return self._to_logits(hidden), ops.cast(hidden, "float32"), cache

    def paged_steps(self, num_blocks: int, block_size: int, **options: Any) -> PagedSteps:
        """Returns the model with a paged cache, for `generation.Engine`: see `tasks.decoding.paged_steps.PagedSteps`."""
        from keras_transformer.tasks.decoding.paged_steps import PagedSteps

        return PagedSteps(self, num_blocks, block_size, **options)

    def save_assets(self, directory: Path) -> None:
        """Saves the tokenizer in the `.keras` file; called by Keras."""
        if self.tokenizer is not None:
            self.tokenizer.save(directory)

    def load_assets(self, directory: Path) -> None:
        """Loads the tokenizer from the `.keras` file; called by Keras."""
        from keras_transformer.text import load_tokenizer

        if any(pathlib.Path(directory).iterdir()):
            self.tokenizer = load_tokenizer(directory)

    def get_config(self) -> Config:
        return {
            "backbone": serialize(self.backbone),
            "tie_embeddings": self.tie_embeddings,
            "start_id": self.start_id,
            "end_id": self.end_id,
            "head_scale": self.head_scale,
            "head_bias": self.head_bias,
            "logit_soft_cap": self.logit_soft_cap,
            "cache_dtype": self.cache_dtype,
            "name": self.name,
            "trainable": self.trainable,
            **({} if self.sampling is None else {"sampling": dataclasses.asdict(self.sampling)}),
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, object] | None = None) -> LanguageModel:
        sampling = config.get("sampling")
        options = {name: value for name, value in config.items() if name != "sampling"}
        model = cls(**{**options, "backbone": resolve(config["backbone"], {}, keras.Model)})
        model.sampling = None if sampling is None else SamplingDefaults.from_dict(sampling)
        return model


@serializable
class _Logits(keras.layers.Layer):
    """Logits in the dtype of the layer, with an optional bias and an optional soft cap."""

    def __init__(self, soft_cap: float | None = None, use_bias: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.soft_cap = soft_cap
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        inputs = inputs + self.bias if self.use_bias else inputs
        return inputs if self.soft_cap is None else soft_cap(inputs, self.soft_cap)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "soft_cap": self.soft_cap, "use_bias": self.use_bias}


def _checked_table(backbone: keras.Model, is_tied: bool, tokenizer: Tokenizer | None) -> keras.layers.Embedding:
    """The token embedding of a backbone, which fits the head and the tokenizer."""
    embedding = token_table(backbone, *_EMBEDDING_NAMES)
    check_tokens(backbone)
    if is_tied:
        check_tied(backbone, embedding, backbone.output.shape[-1])
    if tokenizer is not None and tokenizer.vocabulary_size > embedding.input_dim:
        raise ForeignTokenizerError(
            f"The tokenizer has {tokenizer.vocabulary_size} tokens; "
            f"{backbone.name!r} was built for {embedding.input_dim}."
        )
    return embedding
