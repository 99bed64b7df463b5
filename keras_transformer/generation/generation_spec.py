"""The description of a language model that Keras, the decoding loop and the runtimes share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_transformer.generation.sampling_defaults import SamplingDefaults
from keras_transformer.generation.stop import as_end_ids

_TEXT_SOURCE = ("source_token_ids", "source_padding_mask")


@dataclasses.dataclass(frozen=True)
class GenerationSpec:
    """Description of a language model for the decoding loop.

    `LanguageModel.generation_spec` returns it, `DecodingSteps.spec` holds it in every runtime, and the manifest of a bundle
    stores `to_dict()` under "generation".

    Args:
        vocabulary_size: int. Number of token ids.
        max_length: int or None. Maximum number of tokens of a sequence; None for no limit.
        is_encoder_decoder: bool. Whether the model has an encoder, which reads a source.
        takes_prompts: bool or None. Whether the decoder continues a prompt; None for `not is_encoder_decoder`.
        source_names: tuple of str. Names of the source inputs, in the order of `encode`. Behind a source that is not text
            is the grid of its images, int32 `(I, 2)`, if they have different ones.
        source_shape: tuple of int or None. Shape of a source that is not text, without the batch axis; None entries are
            dynamic. None for text.
        cache_is_rewindable: bool. Whether the cache can go back to an earlier index.
        has_prefill_exit: bool. Whether `prefill` returns the hidden state of the last token only. See
            `models.PrefillExit`.
        start_id: int or None. Token that every decoder sequence begins with.
        end_id: int, tuple of int, or None. Token, or tokens, that end a sequence.
        sampling: `SamplingDefaults`: how a server samples where a request does not say; or None.

    Raises:
        ValueError: a field has the wrong type or range; the message names all such fields.

    Example:

    >>> spec = GenerationSpec(vocabulary_size=50, max_length=16, end_id=2)
    >>> spec.end_ids, spec.takes_prompts
    ((2,), True)
    >>> GenerationSpec.from_dict(spec.to_dict()) == spec
    True
    """

    vocabulary_size: int
    max_length: int | None = None
    is_encoder_decoder: bool = False
    takes_prompts: bool | None = None
    source_names: tuple[str, ...] = ()
    source_shape: tuple[int | None, ...] | None = None
    cache_is_rewindable: bool = True
    has_prefill_exit: bool = False
    start_id: int | None = None
    end_id: int | tuple[int, ...] | None = None
    sampling: SamplingDefaults | None = None

    def __post_init__(self) -> None:
        if self.takes_prompts is None:
            object.__setattr__(self, "takes_prompts", not self.is_encoder_decoder)
        if self.is_encoder_decoder and not self.source_names:
            object.__setattr__(self, "source_names", _TEXT_SOURCE)
        wrong = [name for name, is_valid in _FIELDS.items() if not is_valid(getattr(self, name))]
        if wrong:
            raise ValueError(
                f"Invalid generation spec: {', '.join(f'{name}={getattr(self, name)!r}' for name in wrong)}"
            )
        tokens = (*as_end_ids(self.start_id), *self.end_ids)
        if max(tokens, default=0) >= self.vocabulary_size:
            raise ValueError(
                f"start_id {self.start_id} and end_id {self.end_id} must be below vocabulary_size {self.vocabulary_size}."
            )

    @property
    def end_ids(self) -> tuple[int, ...]:
        """tuple of int: the tokens that end a sequence."""
        return as_end_ids(self.end_id)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        values = dataclasses.asdict(self)
        if self.sampling is None:
            del values["sampling"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> GenerationSpec:
        """The inverse of `to_dict`.

        Raises:
            ValueError: a field is missing, or has the wrong type or range.
        """
        missing = [name for name in _REQUIRED if name not in record]
        if missing:
            raise ValueError(f"Invalid generation spec: {missing} missing")
        names = [field.name for field in dataclasses.fields(cls) if field.name in record]
        values: dict[str, Any] = {
            name: tuple(record[name]) if isinstance(record[name], list) else record[name] for name in names
        }
        values["source_names"] = values.get("source_names") or ()
        if isinstance(values.get("sampling"), Mapping):
            values["sampling"] = SamplingDefaults.from_dict(values["sampling"])
        # Manifests of earlier versions name it "exits".
        values.setdefault("has_prefill_exit", record.get("exits", False))
        return cls(**values)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


_REQUIRED = ("vocabulary_size", "max_length", "is_encoder_decoder", "start_id", "end_id")
_FIELDS = {
    "sampling": lambda value: value is None or isinstance(value, SamplingDefaults),
    "vocabulary_size": _is_size,
    "max_length": lambda value: value is None or _is_size(value),
    "is_encoder_decoder": _is_bool,
    "takes_prompts": _is_bool,
    "source_names": lambda value: isinstance(value, tuple) and all(isinstance(name, str) for name in value),
    "source_shape": lambda value: (
        value is None or (isinstance(value, tuple) and all(size is None or _is_size(size) for size in value))
    ),
    "cache_is_rewindable": _is_bool,
    "has_prefill_exit": _is_bool,
    "start_id": lambda value: value is None or _is_token(value),
    "end_id": lambda value: (
        value is None or _is_token(value) or (isinstance(value, tuple) and all(_is_token(token) for token in value))
    ),
}
