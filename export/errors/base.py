"""`ExportError`, the base of all errors of this package.

Each message is one line: the cause, what to do about it, and the command that prints its entry in docs/errors.md.
"""

import re

from keras_transformer.export.remedies import Remedy

# The command that prints an entry.
EXPLAIN = "keras-transformer explain"


class ExportError(Exception):
    """Base of all errors that exporting, verifying or running a bundle raises on purpose.

    Itself it is raised for an argument, whose valid values it names.

    Args:
        message: the cause, in one line.
        remedy: what to do about it, or None.
        values: those of the names in the remedy.

    Example:

    >>> print(ExportError("a bundle is a directory"))
    a bundle is a directory (keras-transformer explain exporterror)
    """

    def __init__(self, message: object = "", remedy: Remedy | None = None, **values: object) -> None:
        text, entry = re.sub(r"(?<!\.)\.$", "", str(message)), type(self).__name__.lower()
        if remedy is not None:
            text, entry = f"{text}; {remedy.text.format(**values)}", remedy.anchor
        # The cause may be an error with an entry of its own.
        super().__init__(text if f"({EXPLAIN} " in text else f"{text} ({EXPLAIN} {entry})")
