"""Exceptions of retrieval. Every message is one line that names the cause."""


class RetrievalError(ValueError):
    """Base class of retrieval errors: an invalid argument, or a database that does not fit it."""


class InvalidDatabaseError(RetrievalError):
    """A folder that contains no database, or a modified or truncated one."""
