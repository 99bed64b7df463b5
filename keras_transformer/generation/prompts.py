"""Parsing and validation of prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.generation.errors import (
    EmptyPromptError,
    GenerationError,
    MissingTokenizerError,
    PromptTooLongError,
)
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.generation.generation_spec import GenerationSpec
    from keras_transformer.generation.protocols import TextTokenizer

# One prompt or several: text, token ids, or features; a dict of features and the prompts of the decoder; or parsed ones.
PromptsLike: TypeAlias = "str | bytes | Sequence[object] | np.ndarray | Mapping[str, object] | Prompts"


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Validated prompts.

    Attributes:
        decoder: list of int32 arrays. Token ids at the start of each decoder sequence.
        source: list of int32 arrays, or float32 arrays if the source is not text: the inputs of the encoder; None for a
            decoder-only model.
        is_text: bool. Whether results are text.
        is_single: bool. Whether the input was a single prompt, not a list.
        continues: bool. Whether a result is a continuation of the decoder prompt, not a text of its own.
        grids: list of int32 arrays `(I, 2)`: rows and columns of patches of the images of each source; None for none.
    """

    decoder: list[np.ndarray]
    source: list[np.ndarray] | None
    is_text: bool
    is_single: bool
    continues: bool = True
    grids: list[np.ndarray] | None = None

    @classmethod
    def read(cls, prompts: PromptsLike, tokenizer: TextTokenizer | None, spec: GenerationSpec) -> Prompts:
        """Parses prompts in any form that `Generator.generate` accepts.

        Raises:
            GenerationError: an invalid prompt; the message has its index.
        """
        if spec.source_shape is not None:
            return cls._of_features(prompts, tokenizer, spec)
        return cls._of_text(prompts, tokenizer, spec, spec.is_encoder_decoder)

    @classmethod
    def of_tokens(cls, token_ids: Sequence[int]) -> Prompts:
        """One prompt of token ids whose result is a text of its own, such as an answer."""
        return cls([np.array(token_ids, "int32")], None, is_text=True, is_single=True, continues=False)

    @classmethod
    def _of_text(cls, prompts: Any, tokenizer: TextTokenizer | None, spec: GenerationSpec, is_source: bool) -> Prompts:
        """Parses text or token ids: sources of the encoder if `is_source`, otherwise decoder prompts."""
        if isinstance(prompts, dict):
            raise GenerationError(
                f"Prompts must be text or token ids. Received a dict of {', '.join(map(repr, prompts))}"
            )
        if isinstance(prompts, (str, bytes)) or _is_row(prompts):
            is_single, prompts = True, [prompts]
        else:
            is_single, prompts = False, list(prompts)
        if not prompts:
            raise EmptyPromptError("No prompts were given.")
        is_text = isinstance(prompts[0], (str, bytes))
        begin = () if spec.start_id is None else (spec.start_id,)
        if is_text:
            rows = _encode(prompts, tokenizer, frame_of(tokenizer, spec.start_id, is_source))
        else:
            rows = [_ids(number, prompt, spec.vocabulary_size) for number, prompt in enumerate(prompts)]
        if is_source:
            source, decoder = rows, _start_rows(spec.start_id, len(rows))
        else:
            source, decoder = None, [np.array([*begin, *row], "int32") if is_text else row for row in rows]
        for number, row in enumerate(source or decoder):
            if not len(row):
                raise EmptyPromptError(f"Prompt {number} is empty.")
        return cls(decoder, source, is_text, is_single, continues=not is_source)

    @classmethod
    def _of_features(cls, prompts: Any, tokenizer: TextTokenizer | None, spec: GenerationSpec) -> Prompts:
        """Parses source arrays, or a dict of source arrays and decoder prompts."""
        shape, text, grids = spec.source_shape, None, None
        if isinstance(prompts, dict):
            prompts, grids, text = _features_and_text(prompts, spec.source_names)
            text = cls._of_text(text, tokenizer, spec, is_source=False)
            prompts = [prompts] if text.is_single else prompts
            grids = [grids] if text.is_single and grids is not None else grids
        elif spec.takes_prompts:
            names = ", ".join(f"{name!r}: ..." for name in (*spec.source_names, "token_ids"))
            raise GenerationError(f"The model needs decoder prompts. Pass {{{names}}}.")
        is_single = isinstance(prompts, (str, bytes)) or len(getattr(prompts, "shape", ())) == len(shape or ())
        source = [np.asarray(prompt) for prompt in ([prompts] if is_single else prompts)]
        for number, row in enumerate(source):
            if row.dtype.kind != "f" or not _fits(row.shape, shape):
                raise GenerationError(
                    f"Prompt {number} must be floats of shape {shape}. Received: {row.dtype} {row.shape}"
                )
        if not source:
            raise EmptyPromptError("No prompts were given.")
        source = [row.astype("float32") for row in source]
        if text is not None:
            if len(source) != len(text.decoder):
                raise GenerationError(f"Received {len(text.decoder)} prompts for {len(source)} {spec.source_names[0]}.")
            grids = None if grids is None else _grids(grids, source)
            return cls(text.decoder, source, text.is_text, text.is_single, grids=grids)
        return cls(_start_rows(spec.start_id, len(source)), source, tokenizer is not None, is_single, continues=False)

    def prefix(self, row: int) -> list[int]:
        """Returns the token ids that the result of a row continues; empty if it is a text of its own."""
        return self.decoder[row].tolist() if self.continues else []

    def available_tokens(self, spec: GenerationSpec, limit: int) -> int:
        """Returns the number of new tokens that fit after the longest prompt, at most `limit`."""
        longest = max(map(len, self.decoder))
        return limit if spec.max_length is None else max(1, min(limit, spec.max_length - longest))

    def check_ids(self, spec: GenerationSpec) -> None:
        """Raises `GenerationError` for token ids outside of the vocabulary of the model, from any source."""
        sources = self.source if self.source is not None and spec.source_shape is None else []
        for rows in (sources, self.decoder):
            for number, row in enumerate(rows):
                _check_range(number, row, spec.vocabulary_size)

    def check_lengths(self, spec: GenerationSpec, max_new_tokens: int) -> None:
        """Raises `PromptTooLongError` if a prompt and its new tokens exceed the maximum length of the model."""
        if spec.max_length is None:
            return
        for number, source in enumerate(self.source or []):
            if spec.source_shape is None and len(source) > spec.max_length:
                raise PromptTooLongError(
                    f"Prompt {number} has {len(source)} tokens; the maximum length of the model is {spec.max_length}."
                )
        for number, prompt in enumerate(self.decoder):
            if len(prompt) + max_new_tokens > spec.max_length:
                raise PromptTooLongError(
                    f"Prompt {number} has {len(prompt)} tokens; with max_new_tokens={max_new_tokens} that exceeds the "
                    f"{spec.max_length} that the model can hold."
                )


def _features_and_text(prompts: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """Returns the source, its grids or None, and the decoder prompts of a dict."""
    text = next((key for key in ("token_ids", "target_token_ids") if key in prompts), "token_ids")
    if set(prompts) != {*names, text}:
        raise GenerationError(
            f"Prompts must be a dict of {', '.join(map(repr, names))} and 'token_ids'. Received: "
            f"{', '.join(map(repr, prompts))}"
        )
    return prompts[names[0]], prompts[names[1]] if len(names) > 1 else None, prompts[text]


def _grids(grids: Iterable[ArrayLike], source: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the grids of the images of each source, int32 `(I, 2)`."""
    rows = [np.asarray(each) for each in grids]
    if len(rows) != len(source):
        raise GenerationError(f"Received the grids of {len(rows)} prompts for the images of {len(source)}.")
    for number, (row, images) in enumerate(zip(rows, source, strict=True)):
        if row.dtype.kind not in "iu" or row.shape != (len(images), 2) or row.min() < 0:
            raise GenerationError(
                f"The grid of prompt {number} must be rows and columns of {len(images)} images in patches, integers of "
                f"shape ({len(images)}, 2). Received: {row.dtype} {row.shape}"
            )
    return [row.astype("int32") for row in rows]


def _fits(found: Sequence[int], shape: Any) -> bool:
    """Returns whether a shape has no axis of size 0 and matches an expected shape, in which None is any size."""
    if len(found) != len(shape) or 0 in found:
        return False
    return all(wanted in (None, size) for size, wanted in zip(found, shape, strict=True))


def _start_rows(start_id: int | None, count: int) -> list[np.ndarray]:
    """Returns the decoder prompts of `count` sources: the start token."""
    if start_id is None:
        raise GenerationError("An encoder-decoder needs a start_id, the first token of its decoder.")
    return [np.array([start_id], "int32")] * count


def _is_row(prompts: object) -> bool:
    """Returns whether this is a single prompt of token ids."""
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1
    return isinstance(prompts, (list, tuple)) and len(prompts) > 0 and isinstance(prompts[0], (int, np.integer))


def frame_of(tokenizer: Any, start_id: int | None, is_source: bool) -> dict[str, bool]:
    """How a tokenizer encodes prompts: arguments "start" and "end" of its `encode`.

    A source gets the special tokens of the tokenizer's template, or else the end token. A prompt gets those before a text,
    unless the model has a start token of its own, which the caller adds.
    """
    template = getattr(tokenizer, "template_options", None)
    if is_source:
        return {"end": tokenizer.end_id is not None} if template is None else template
    return {"start": start_id is None and template is not None and template["start"]}


def _encode(prompts: Sequence[object], tokenizer: TextTokenizer | None, frame: dict[str, bool]) -> list[np.ndarray]:
    if tokenizer is None:
        raise MissingTokenizerError("The model has no tokenizer. Pass token ids, or build the model with tokenizer=...")
    texts = [_text(number, prompt) for number, prompt in enumerate(prompts)]
    return [np.array(tokenizer.encode(text, **frame), "int32") for text in texts]


def _text(number: int, prompt: object) -> str:
    """Returns a prompt as a str that can be encoded as UTF-8."""
    if not isinstance(prompt, (str, bytes)):
        raise GenerationError(f"Prompt {number} must be text like the first. Received: {type(prompt).__name__}")
    try:
        text = prompt.decode("utf-8") if isinstance(prompt, bytes) else prompt
        text.encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise GenerationError(f"Prompt {number} is not UTF-8 text: {error.reason} at {error.start}.") from None
    return text


def _ids(number: int, prompt: object, vocabulary_size: int) -> np.ndarray:
    try:
        row = np.asarray(prompt)
    except ValueError:  # A ragged list.
        row = None
    if row is None or row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
        raise GenerationError(f"Prompt {number} must be text or a list of token ids. Received: {repr(prompt)[:80]}")
    _check_range(number, row, vocabulary_size)
    return row.astype("int32")


def _check_range(number: int, row: np.ndarray, vocabulary_size: int) -> None:
    """Refuses token ids that an embedding would count from its end, or does not have."""
    if row.size and not 0 <= row.min() <= row.max() < vocabulary_size:
        raise GenerationError(f"Prompt {number} has token ids outside 0 to {vocabulary_size - 1}.")
