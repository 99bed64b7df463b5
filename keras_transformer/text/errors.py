"""What can be wrong with text and tokenizers; every message is one line that names the culprit."""


class TextError(ValueError):
    """Text or a tokenizer that cannot be used as asked; the base of the errors below."""


class EncodingError(TextError):
    """Bytes that are not UTF-8, or a string that UTF-8 cannot hold."""


class EmptyTextError(TextError):
    """Training was given no text."""


class MissingTextError(TextError, FileNotFoundError):
    """A file of text does not exist or cannot be read."""


class SpecialTokenError(TextError):
    """A special token is asked for that the tokenizer does not have, or a set of them is wrong."""


class InvalidTokenizerError(TextError):
    """A folder or file holds no tokenizer, one of another kind, or one that was altered."""


class GraphError(TextError):
    """The tokenizer cannot run inside a TensorFlow graph."""
