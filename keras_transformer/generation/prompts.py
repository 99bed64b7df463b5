"""Reading what the user gives as prompts, and refusing what cannot be continued."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.errors import (
    EmptyPromptError,
    GenerationError,
    MissingTokenizerError,
    PromptTooLongError,
)

if TYPE_CHECKING:
    from keras_transformer.generation.generation_spec import GenerationSpec


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Prompts as token ids.

    Attributes:
        decoder: list of int32 arrays: what the decoder begins with.
        source: list of int32 arrays, or of float32 ones where it is no text: what the encoder of an encoder-decoder reads;
            None without one.
        is_text: whether text came, so that text is returned.
        is_single: whether one prompt came, not a list of them.
        continues: whether a result continues what the decoder begins with, and is no text of its own.
    """

    decoder: list
    source: list | None
    is_text: bool
    is_single: bool
    continues: bool = True

    @classmethod
    def read(cls, prompts: Any, tokenizer: Any, spec: GenerationSpec) -> Prompts:
        """Any of the forms that `Generator.generate` takes.

        Raises:
            GenerationError: names the prompt, by its number.
        """
        if spec.source_shape is not None:
            return cls._of_features(prompts, tokenizer, spec)
        return cls._of_text(prompts, tokenizer, spec, spec.is_encoder_decoder)

    @classmethod
    def _of_text(cls, prompts: Any, tokenizer: Any, spec: GenerationSpec, is_source: bool) -> Prompts:
        """Text or tokens, which the encoder reads if it is the source, and with which the decoder begins if not."""
        if isinstance(prompts, dict):
            raise GenerationError(
                f"Prompts are text or token ids alone here. Received: {', '.join(map(repr, prompts))}"
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
            rows = _encode(prompts, tokenizer, is_source)
        else:
            rows = [_ids(number, prompt, spec.vocabulary_size) for number, prompt in enumerate(prompts)]
        if is_source:
            source, decoder = rows, _starts(spec.start_id, len(rows))
        else:
            source, decoder = None, [np.array([*begin, *row], "int32") if is_text else row for row in rows]
        for number, row in enumerate(source or decoder):
            if not len(row):
                raise EmptyPromptError(f"Prompt {number} is empty.")
        return cls(decoder, source, is_text, is_single, continues=not is_source)

    @classmethod
    def _of_features(cls, prompts: Any, tokenizer: Any, spec: GenerationSpec) -> Prompts:
        """Arrays, each of which is answered: in text where there is a tokenizer; or a dict of these and of prompts."""
        shape, text = spec.source_shape, None
        if isinstance(prompts, dict):
            prompts, text = _features_and_text(prompts, spec.source_names[0])
            text = cls._of_text(text, tokenizer, spec, is_source=False)
            prompts = [prompts] if text.is_single else prompts
        elif spec.takes_prompts:
            raise GenerationError(
                f"The model continues text: give {{{spec.source_names[0]!r}: ..., 'token_ids': ...}}."
            )
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
                raise GenerationError(
                    f"There are {len(text.decoder)} prompts for {len(source)} {spec.source_names[0]}."
                )
            return cls(text.decoder, source, text.is_text, text.is_single)
        return cls(_starts(spec.start_id, len(source)), source, tokenizer is not None, is_single, continues=False)

    def before(self, row: int) -> list[int]:
        """The tokens that a result continues as a text; an answer to a source begins a text of its own."""
        return self.decoder[row].tolist() if self.continues else []

    def room(self, spec: GenerationSpec, wanted: int) -> int:
        """How many new tokens the model can hold after the longest prompt, at most `wanted`."""
        longest = max(map(len, self.decoder))
        return wanted if spec.max_length is None else max(1, min(wanted, spec.max_length - longest))

    def check_room(self, spec: GenerationSpec, max_new_tokens: int) -> None:
        """Refuses prompts for which the model has not positions enough."""
        if spec.max_length is None:
            return
        for number, source in enumerate(self.source or []):
            if spec.source_shape is None and len(source) > spec.max_length:
                raise PromptTooLongError(
                    f"Prompt {number} has {len(source)} tokens; the model takes at most {spec.max_length}."
                )
        for number, prompt in enumerate(self.decoder):
            if len(prompt) + max_new_tokens > spec.max_length:
                raise PromptTooLongError(
                    f"Prompt {number} has {len(prompt)} tokens; with max_new_tokens={max_new_tokens} that exceeds the "
                    f"{spec.max_length} that the model can hold."
                )


def _features_and_text(prompts: Any, name: str):
    """The two entries of a dict of prompts."""
    text = next((key for key in ("token_ids", "target_token_ids") if key in prompts), "token_ids")
    if set(prompts) != {name, text}:
        raise GenerationError(
            f"Prompts are a dict of {name!r} and 'token_ids'. Received: {', '.join(map(repr, prompts))}"
        )
    return prompts[name], prompts[text]


def _fits(found: Any, shape: Any) -> bool:
    """Whether a shape, of which nothing is empty, is the one wanted; None there is any size."""
    if len(found) != len(shape) or 0 in found:
        return False
    return all(wanted in (None, size) for size, wanted in zip(found, shape, strict=True))


def _starts(start_id: int | None, count: int):
    """What the decoder of each source begins with."""
    if start_id is None:
        raise GenerationError("An encoder-decoder needs a start_id: the token that its decoder begins with.")
    return [np.array([start_id], "int32")] * count


def _is_row(prompts: Any):
    """Whether this is one prompt of token ids."""
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1
    return isinstance(prompts, (list, tuple)) and len(prompts) > 0 and isinstance(prompts[0], (int, np.integer))


def _encode(prompts: Any, tokenizer: Any, is_source: bool):
    if tokenizer is None:
        raise MissingTokenizerError("The model has no tokenizer: give token ids, or build it with tokenizer=...")
    texts = [_text(number, prompt) for number, prompt in enumerate(prompts)]
    # A source is framed as the tokenizer has it, or else ended.
    frame = getattr(tokenizer, "template_options", {"end": tokenizer.end_id is not None}) if is_source else {}
    return [np.array(tokenizer.encode(text, **frame), "int32") for text in texts]


def _text(number: int, prompt: Any) -> str:
    """The prompt as str that UTF-8 can hold."""
    if not isinstance(prompt, (str, bytes)):
        raise GenerationError(f"Prompt {number} is {type(prompt).__name__}, others are text.")
    try:
        text = prompt.decode("utf-8") if isinstance(prompt, bytes) else prompt
        text.encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise GenerationError(f"Prompt {number} is not UTF-8 text: {error.reason} at {error.start}.") from None
    if not text:
        raise EmptyPromptError(f"Prompt {number} is empty.")
    return text


def _ids(number: int, prompt: Any, vocabulary_size: int):
    row = np.asarray(prompt)
    if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
        raise GenerationError(f"Prompt {number} must be text or a list of token ids. Received: {prompt!r:.80}")
    if row.size and not 0 <= row.min() <= row.max() < vocabulary_size:
        raise GenerationError(f"Prompt {number} has token ids outside 0 to {vocabulary_size - 1}.")
    return row.astype("int32")
