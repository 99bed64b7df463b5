"""What can be wrong with a database of chunks; every message is one line that names the culprit."""


class RetrievalError(ValueError):
    """What is asked of a database cannot be had; the base of the errors below."""


class InvalidDatabaseError(RetrievalError):
    """A folder holds no database, or one that was damaged or cut short."""
