"""What can be wrong with a request for text; every message is one line, and comes before any work is done."""


class GenerationError(ValueError):
    """A request that cannot be served; the base of the errors below."""


class EmptyPromptError(GenerationError):
    """A prompt without a single token."""


class PromptTooLongError(GenerationError):
    """A prompt that, with the tokens asked for, exceeds what the model was built for."""


class MissingTokenizerError(GenerationError):
    """Text for a model that has no tokenizer."""


class ForeignTokenizerError(GenerationError):
    """A tokenizer that does not belong to the model: another vocabulary, or other files than those it was saved with."""


class QueueFullError(GenerationError):
    """More requests than an engine keeps waiting: come back later."""


class RequestCancelledError(GenerationError):
    """A request whose rest nobody wants."""


class EngineClosedError(GenerationError):
    """An engine that takes no requests any more, or ended before this one was served."""


class EngineError(GenerationError):
    """The model failed while it served a request."""
