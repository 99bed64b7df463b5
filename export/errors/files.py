"""Errors of files: one that cannot be written, one that computes something else, one that cannot be run."""

from collections.abc import Iterable

from keras_transformer.export.errors.base import ExportError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.choice import suggestion
from keras_transformer.utils.errors import one_line


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


class UnknownInputError(InputError):
    """No input of a signature has a name that was given. The message has the names of the inputs.

    Args:
        name: the name.
        names: those of the inputs.

    Example:

    >>> print(UnknownInputError("images", ["input"]))
    no input is named 'images': the input is named 'input' (keras-transformer explain unknowninputerror)
    """

    def __init__(self, name: str, names: Iterable[str]) -> None:
        names = tuple(names)
        which = "the input is named" if len(names) == 1 else "the inputs are named"
        quoted = ", ".join(map(repr, names))
        ExportError.__init__(self, f"no input is named {name!r}: {which} {quoted}{suggestion(name, names)}")
        self.name, self.expected, self.got = name, f"one of {', '.join(names)}", "an unknown name"


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


class OutOfSpaceError(ExportError):
    """The disk is full, or a limit of the size of files is reached; nothing of the bundle was kept.

    An export takes about three times the space of the bundle.
    """

    def __init__(self, directory: object) -> None:
        super().__init__(f"no space left on the device of '{directory}'")
        self.directory = str(directory)
