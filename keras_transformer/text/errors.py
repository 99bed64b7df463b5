"""Exceptions of the tokenizers. Every message is one line that names the cause."""


class TextError(ValueError):
    """Base class of the errors below: an invalid argument, text or tokenizer."""


class EncodingError(TextError):
    """Bytes that are not valid UTF-8, or a string that UTF-8 cannot encode."""


class EmptyTextError(TextError):
    """The training corpus contains no text."""


class MissingTextError(TextError, FileNotFoundError):
    """A text file does not exist or cannot be read."""


class SpecialTokenError(TextError):
    """The tokenizer does not have the requested special token, or a set of special tokens is invalid."""


class InvalidTokenizerError(TextError):
    """A folder or file that contains no tokenizer, a tokenizer of another kind, or a modified one."""


class TokenizerLibraryError(TextError):
    """The library of a tokenizer failed on a text or on ids, because its file is inconsistent."""


class GraphError(TextError):
    """The tokenizer cannot run in a TensorFlow graph."""


class SpellingError(TextError):
    """A text that has to be spelled in phonemes or Roman letters, for which the tokenizer has no function."""
