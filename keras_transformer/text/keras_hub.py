"""Tokenizers of KerasHub as tokenizers of this package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from keras_transformer.text.errors import InvalidTokenizerError, TextError
from keras_transformer.text.hugging_face.tokenizer import HuggingFaceTokenizer
from keras_transformer.text.tokenizers.sentencepiece import SentencePiece
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import JsonObject, SpecialTokens

# Attributes of KerasHub, and the roles of their tokens. A token has one role of each name.
_ROLES = {
    "start_token": "start",
    "end_token": "end",
    "pad_token": "pad",
    "unk_token": "unknown",
    "cls_token": "classification",
    "sep_token": "separator",
    "mask_token": "mask",
}
_SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "\u00a0",
    "\u3000",
    "\u2009",
    "\u200b",
    "\ufeff",
    "\x0b",
)
_CONTROLS = ("\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ufffd")
_WORDS = (
    "The quick brown fox jumps over the lazy dog.",
    "It's 3.14159, isn't it? They'll say WE'RE 1,000,000% sure!!!",
    "def f(x):\n    return {'a': [x ** 2, \"b\"]}  # comment",
    "https://example.com/a_b?c=d&e=%20f#g user@host.org C:\\path\\file.txt",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
    "Dès Noël, où un zéphyr haï me vêt de glaçons würmiens",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "いろはにほへと ちりぬるを 東京は日本の首都です。",
    "我能吞下玻璃而不伤身体。价格是¥1,234元",
    "다람쥐 헌 쳇바퀴에 타고파",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "דג סקרן שט בים מאוכזב",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "😀😃 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☕️ é e\u0301 ﬁ ½ ² ™",
    "١٢٣ ४५६ 𝟙𝟚𝟛 Ⅻ",
    "aaaaaaaaaaaaaaaa................--------________",
)


class _HubTokenizer(Protocol):
    """A tokenizer of KerasHub, whose assets are read by name."""

    def __call__(self, inputs: str, /) -> Sequence[int]: ...


def from_keras_hub(tokenizer: _HubTokenizer, chat_template: str | None = None) -> Tokenizer:
    """Returns the tokenizer of this package that is equal to one of KerasHub: byte-pair, WordPiece or SentencePiece.

    Before it is returned, it has encoded some hundred lines of several languages, with white space, control characters and
    emoji, and its ids were those of KerasHub. Unlike there, the name of a special token in a text is text, unless
    `encode(text, allow_special_tokens=True)` says otherwise.

    Args:
        tokenizer: a tokenizer of KerasHub with a vocabulary, such as `task.preprocessor.tokenizer`. If texts of several
            preprocessing steps go into its ids, as in a `tf.data` pipeline, these are those of a call with a str.
        chat_template: str or None. The chat template, in Jinja; see `generation.ChatTemplate`. KerasHub has none.

    Returns:
        A `HuggingFaceTokenizer` or a `SentencePiece`.

    Raises:
        InvalidTokenizerError: the tokenizer has no vocabulary, or is of another kind; the message names its class.

    Example:

    >>> import keras_hub
    >>> vocabulary = {"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}
    >>> tokenizer = from_keras_hub(keras_hub.models.GPT2Tokenizer(vocabulary, ["a b"]))
    >>> tokenizer.encode("abba"), tokenizer.end_id
    ([2, 1, 0], 3)
    """
    name = type(tokenizer).__name__
    try:
        found = _converted(tokenizer, chat_template)
    except TextError as error:
        raise InvalidTokenizerError(f"{name} of KerasHub: {error}") from error
    if found is None:
        raise InvalidTokenizerError(f"{name} of KerasHub has no vocabulary, or one of a kind that is not known.")
    for line in _lines():
        own, other = _ids(tokenizer, line), found.encode(line)
        if own != other:
            raise InvalidTokenizerError(
                f"{name} of KerasHub encodes {line!r:.60} as {str(own):.60}, and {type(found).__name__} as {str(other):.60}."
            )
    return found


def _converted(tokenizer: _HubTokenizer, chat_template: str | None) -> Tokenizer | None:
    """The tokenizer of this package, before it is compared; None for one that is not known."""
    roles = _roles(tokenizer)
    proto = getattr(tokenizer, "proto", None)
    if isinstance(proto, bytes):
        return SentencePiece(proto, roles, chat_template)
    # The pipeline by which KerasHub encodes, of the library that reads it here.
    pipeline = getattr(tokenizer, "_tokenizer", None)
    if pipeline is None or not hasattr(pipeline, "to_str"):
        return None
    return HuggingFaceTokenizer(pipeline.to_str(), roles, chat_template=chat_template)


def _roles(tokenizer: _HubTokenizer) -> SpecialTokens:
    """The special tokens by role; those that have none are additional."""
    tokens = {role: getattr(tokenizer, name, None) for name, role in _ROLES.items()}
    found: JsonObject = {role: token for role, token in tokens.items() if isinstance(token, str)}
    names = getattr(tokenizer, "_special_token_attrs", ())
    others = {getattr(tokenizer, name, None) for name in names} - set(found.values())
    additional = sorted(token for token in others if isinstance(token, str))
    return {**found, "additional": additional} if additional else found


def _ids(tokenizer: _HubTokenizer, text: str) -> list[int]:
    """The ids of KerasHub."""
    try:
        return [int(token) for token in tokenizer(text)]
    except library_exceptions() as error:
        raise InvalidTokenizerError(
            f"{type(tokenizer).__name__} of KerasHub cannot encode {text!r:.60}: {one_line(error)}"
        ) from error


def _lines() -> Iterator[str]:
    """Lines of several languages and kinds."""
    yield from _WORDS
    for index, line in enumerate(_WORDS):
        space, control = _of(_SPACES, index), _of(_CONTROLS, index)
        yield from (space + line, line + space, line.replace(" ", space), line.upper(), line[::-1])
        yield from (control.join(line.split(" ", 3)), f"{line[:9]}{space}{control}{line[9:20]}")
        yield " ".join(line[start : start + 1 + index % 4] for start in range(0, len(line), 5))
    yield from (f"a{space}{space}b" for space in _SPACES)
    yield from (f"x{control}y {control}" for control in _CONTROLS)


def _of(values: Sequence[str], index: int) -> str:
    return values[index % len(values)]
