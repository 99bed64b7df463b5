"""What can be wrong with a database of chunks; every message is one line that names the culprit."""


class RetrievalError(ValueError):
    """A request that a database cannot serve: the base class of the errors below."""


class InvalidDatabaseError(RetrievalError):
    """A folder without a database, or with a damaged or truncated one."""
