"""Errors of generation requests. Each message is one line, and requests are checked before the model runs."""


class GenerationError(ValueError):
    """An invalid or failed generation request. Base class of the errors below."""


class EmptyPromptError(GenerationError):
    """A prompt has no tokens."""


class PromptTooLongError(GenerationError):
    """A prompt and its new tokens exceed the maximum length of the model."""


class ChatMessageError(GenerationError):
    """A message of a chat is invalid."""


class ChatTemplateError(GenerationError):
    """A chat template is missing, invalid, or refuses the messages."""


class GrammarError(GenerationError):
    """A grammar is invalid or not supported, or its texts cannot be written with the tokens of the model."""


class MissingTokenizerError(GenerationError):
    """Text was given or requested, but the model has no tokenizer."""


class ForeignTokenizerError(GenerationError):
    """A tokenizer does not match the model: its vocabulary or its files differ from those the model was saved with."""


class QueueFullError(GenerationError):
    """The waiting queue of an engine is full. The request can be retried later."""


class UserLimitError(QueueFullError):
    """A user has as many requests as an engine allows. The request can be retried later."""


class RequestCancelledError(GenerationError):
    """The request was cancelled."""


class EngineClosedError(GenerationError):
    """The engine is closed: it accepts no requests, or was closed before the request finished."""


class EngineError(GenerationError):
    """The model or the engine failed while it processed the request."""


class UnknownModelError(GenerationError):
    """A request names a model that a server does not have."""
