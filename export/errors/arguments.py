"""Errors of arguments, of models and of bundles, and of libraries that are not installed."""

from collections.abc import Iterable

from keras_transformer.export.errors.base import ExportError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.choice import suggestion
from keras_transformer.version import install_command


class InvalidModelError(ExportError):
    """The model cannot be exported: it is no Keras model, its inputs are not known, or it fails on its own inputs.

    Each case has an entry of its own above; others name the argument that does not fit the model, and what would.
    """


class NotDeterministicError(InvalidModelError):
    """The model computes other values each time it is called, by random numbers that cannot become inputs, say."""


class InvalidBundleError(ExportError):
    """A directory is not a bundle, or a file of the bundle is missing, altered or outside the bundle.

    Nothing of such a directory is run. Export the model again, or copy the whole directory again from where it was written.
    """


class OptionsError(ExportError):
    """An option of `export` does not exist, or is not of its type. The message names the valid ones."""


class MissingLibraryError(ExportError, ImportError):
    """A library that a runtime, a tokenizer or a command needs is not installed.

    The message has the command that installs it.

    Args:
        what: what needs it.
        library: the name under which pip installs it.
        extra: the extra of this package that brings it, or None.
        command: what installs it where pip does not, or None.
    """

    def __init__(self, what: str, library: str, extra: str | None = None, command: str | None = None) -> None:
        command = command or (f"pip install {library}" if extra is None else install_command(extra))
        super().__init__(f"{what} needs {library}: {command}")
        self.library = library


class _UnknownNameError(ExportError):
    """There is nothing of a kind that has a name.

    Args:
        name: the name.
        valid: the existing names.
    """

    kind: str

    def __init__(self, name: object, valid: Iterable[str]) -> None:
        valid = tuple(valid)
        super().__init__(f"unknown {self.kind} {name!r}; valid: {', '.join(valid)}{suggestion(name, valid)}")
        self.name = name
        self.valid = valid


class UnknownFormatError(_UnknownNameError):
    """There is no format (or backend) of a name. The message names the valid ones.

    Args:
        name: the name.
        valid: the existing names.
    """

    kind = "format"


class UnknownTargetError(_UnknownNameError):
    """There is no target of a name. The message names the valid ones.

    Args:
        name: the name.
        valid: the existing names.
    """

    kind = "target"


class TargetError(ExportError):
    """A target needs something that was not given, or does not support what was.

    Args:
        target: name of the target.
        reason: what is missing or not supported.
        remedy: what to do about it, or None.
        values: those of the names in the remedy.
    """

    def __init__(self, target: str, reason: str, remedy: Remedy | None = None, **values: object) -> None:
        super().__init__(f"target '{target}': {reason}", remedy, target=target, **values)
        self.target = target
        self.reason = reason


class QuantizationError(ExportError):
    """The requested quantization is not supported, or costs the task more than the caller allows.

    The figures are in the message: allow more, take another mode, or leave sensitive weights in float with `keep_float`;
    [quantize](cookbook/quantize.md) says how they are found.
    """
