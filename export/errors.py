"""The errors of exporting, verifying and running bundles.

Each message is one line: the cause, what to do about it, and the address of its entry in the documentation.
"""

import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.choice import nearest
from keras_transformer.utils.choice import suggestion as suggestion
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import Path
from keras_transformer.version import install_command

# The page of the documentation that lists them.
PAGE = "docs/errors.md"


class ExportError(Exception):
    """Base of all errors that exporting, verifying or running a bundle raises on purpose.

    Itself it is raised for an argument, whose valid values it names.

    Args:
        message: the cause, in one line.
        remedy: what to do about it, or None.
        values: those of the names in the remedy.

    Example:

    >>> print(ExportError("a bundle is a directory"))
    a bundle is a directory (docs/errors.md#exporterror)
    """

    def __init__(self, message: object = "", remedy: Remedy | None = None, **values: object) -> None:
        text, entry = re.sub(r"(?<!\.)\.$", "", str(message)), type(self).__name__.lower()
        if remedy is not None:
            text, entry = f"{text}; {remedy.text.format(**values)}", remedy.anchor
        # The cause may be an error with an address of its own.
        super().__init__(text if f"({PAGE}#" in text else f"{text} ({PAGE}#{entry})")


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


class ConversionError(ExportError):
    """A converter failed for a reason other than an unsupported op.

    `error.log` is what the converter printed.

    Args:
        format: name of the format being written.
        reason: what went wrong, in one line.
        log: what the converter printed, if anything.
        remedy: what to do about it, or None.
    """

    def __init__(self, format: str, reason: object, log: str = "", remedy: Remedy | None = None) -> None:
        super().__init__(f"{format}: conversion failed: {one_line(reason)}", remedy)
        self.format = format
        self.reason = reason
        self.log = log


class UnsupportedOpError(ExportError):
    """The format has no built-in op for something the model computes.

    The message names the operation of TensorFlow and the layer. [Operations](operations.md) says what becomes of each.

    Args:
        format: name of the format.
        op: TensorFlow name of the first op without a counterpart.
        layer: the layer (or functional operation) that the op came from.
        others: further unsupported ops, `(op, layer)` pairs.
        hint: why, or what to do about it, or "".
        remedy: what to do about it, or None where the hint says it.
    """

    def __init__(
        self,
        format: str,
        op: str,
        layer: str,
        others: Iterable[tuple[str, str]] = (),
        hint: str = "",
        remedy: Remedy | None = None,
    ) -> None:
        others = tuple(others)
        text = f"{format}: op {op} of layer '{layer}' has no built-in counterpart in this format"
        if others:
            named = ", ".join(f"{other} of '{where}'" for other, where in others[:5])
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            text += f" (also {named}{more})"
        super().__init__(f"{text}: {hint}" if hint else text, remedy, op=op, format=format)
        self.format = format
        self.op = op
        self.layer = layer
        self.others = others


class ParityError(ExportError):
    """An artifact does not compute what the Keras model computes.

    The file is not written. [Debug a parity error](cookbook/parity_error.md) finds the layer; `formats` leaves the format
    out; `ExportOptions(tolerance=...)` allows more, where the outputs are known to be that inexact.

    Args:
        format: name of the format.
        output: name of the output that differs.
        probe: the probe, as text (`"batch=5, length=17, padded"`).
        difference: largest absolute difference; NaN where there is none.
        scale: largest absolute value of the Keras output.
        tolerance: largest difference allowed, as a share of the scale.
        detail: set when the fault is not a difference of values (shape, dtype, NaN).
        hint: text that follows the figures.
    """

    def __init__(
        self,
        format: str,
        output: str,
        probe: str,
        difference: float,
        scale: float,
        tolerance: float,
        detail: str | None = None,
        hint: str = "",
    ) -> None:
        if detail is None:
            detail = (
                f"differs from Keras by {difference:.3g}, {difference / scale:.3g} of its scale {scale:.3g};"
                f" tolerance {tolerance:.3g}{hint}"
            )
        super().__init__(f"{format}: output '{output}' {detail} (probe {probe})")
        self.format = format
        self.output = output
        self.probe = probe
        self.difference = difference
        self.scale = scale
        self.tolerance = tolerance


class WeightError(ExportError):
    """A weight in a written file is not the weight of the Keras model.

    The file is not written: it is a fault of a converter, or of this package, which a report of the model would help to
    mend. `formats` leaves the format out.

    Args:
        format: name of the format.
        weight: path of the variable, or the name of a constant in the file.
        reason: what is wrong with it.
        index: the first index of the variable that differs, or None.
    """

    def __init__(self, format: str, weight: str, reason: str, index: tuple[int, ...] | None = None) -> None:
        super().__init__(f"{format}: weight '{weight}' {reason}")
        self.format = format
        self.weight = weight
        self.reason = reason
        self.index = index


class InputError(ExportError):
    """An input does not fit the signature of a runtime model.

    The message says what it takes, as does `model.inputs` of a loaded bundle.

    Args:
        name: name of the input.
        expected: what the signature takes.
        got: what was received.
    """

    def __init__(self, name: str, expected: str, got: str) -> None:
        super().__init__(f"input '{name}': expected {expected}, got {got}")
        self.name = name
        self.expected = expected
        self.got = got


class RunError(ExportError):
    """A runtime fails to compute a signature, or its outputs differ from the manifest.

    The inputs fit the signature, but the model does not take them: a size that it does not allow, say.

    Args:
        backend: name of the format.
        signature: name of the signature.
        reason: the runtime's error.
    """

    def __init__(self, backend: str, signature: str, reason: object) -> None:
        super().__init__(f"{backend}: signature '{signature}' cannot be computed: {one_line(reason)}")
        self.backend = backend
        self.signature = signature
        self.reason = str(reason)


class MissingLibraryError(ExportError, ImportError):
    """A library that a runtime, a tokenizer or a command needs is not installed.

    The message has the command that installs it.

    Args:
        what: what needs it.
        library: the name under which pip installs it.
        extra: the extra of this package that brings it, or None.
    """

    def __init__(self, what: str, library: str, extra: str | None = None) -> None:
        command = f"pip install {library}" if extra is None else install_command(extra)
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


class OutOfSpaceError(ExportError):
    """The disk is full; nothing of the bundle was kept. An export takes about three times the space of the bundle."""

    def __init__(self, directory: object) -> None:
        super().__init__(f"no space left on the device of '{directory}'")
        self.directory = str(directory)


def revived(
    record: Mapping[str, Any], base: type[Exception] = ExportError, names: Mapping[str, Any] | None = None
) -> Any:
    """An error of another process, as an object of its class.

    Args:
        record: dict with "class", "message" and "state", the attributes of the error.
        base: the class of the error, where there is none of that name among `names`.
        names: dict of name to class; those of this module when None.
    """
    cls = (globals() if names is None else names).get(record["class"])
    cls = cls if isinstance(cls, type) and issubclass(cls, base) else base
    error = cls.__new__(cls)
    error.args = (record["message"],)
    vars(error).update(record["state"])
    return error


def nearest_path(path: Path) -> str:
    """`"; did you mean 'x'?"` with the path of the most similar name in the folder of a missing file, or ""."""
    path = pathlib.Path(path)
    try:
        name = nearest(path.name, [each.name for each in path.parent.iterdir()])
    except OSError:
        return ""
    return f"; did you mean '{path.with_name(name)}'?" if name else ""
