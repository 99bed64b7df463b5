"""Every error of an export, each one clear line that names the thing at fault."""

from keras_transformer.version import install_command


class ExportError(Exception):
    """Base of every error that exporting, verifying or running a bundle raises on purpose."""


class InvalidModelError(ExportError):
    """The model cannot be exported at all: not functional, not built, or failing on its own inputs."""


class InvalidBundleError(ExportError):
    """A directory is not a bundle, or a file of the bundle is missing, altered or out of place."""


class ConversionError(ExportError):
    """A converter failed for a reason other than an unsupported op.

    Args:
        format: name of the format being written.
        reason: what went wrong, in one line.
        log: what the converter printed, if anything.
    """

    def __init__(self, format, reason, log=""):
        super().__init__(f"{format}: conversion failed: {one_line(reason)}")
        self.format = format
        self.reason = reason
        self.log = log


class UnsupportedOpError(ExportError):
    """The format has no built-in op for something the model computes.

    Args:
        format: name of the format.
        op: TensorFlow name of the first op without a counterpart.
        layer: the layer (or functional operation) that the op came from.
        others: further unsupported ops, `(op, layer)` pairs.
    """

    def __init__(self, format, op, layer, others=()):
        text = f"{format}: op {op} of layer '{layer}' has no built-in counterpart in this format"
        if others:
            named = ", ".join(f"{other} of '{where}'" for other, where in others[:5])
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            text += f" (also {named}{more})"
        super().__init__(text)
        self.format = format
        self.op = op
        self.layer = layer
        self.others = tuple(others)


class ParityError(ExportError):
    """An artifact does not compute what the Keras model computes.

    Args:
        format: name of the format.
        output: name of the output that differs.
        probe: the probe, as text (`"batch=5, length=17, padded"`).
        difference: largest absolute difference; NaN when no difference can be taken.
        scale: largest absolute value of the Keras output.
        tolerance: what was allowed, as a share of the scale.
        detail: set when the fault is not a difference of values (shape, dtype, NaN).
        hint: what is known of the difference, behind it.
    """

    def __init__(self, format, output, probe, difference, scale, tolerance, detail=None, hint=""):
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


class InputError(ExportError):
    """A runtime model was given an input that its signature does not take.

    Args:
        name: name of the input.
        expected: what the signature takes.
        got: what was given.
    """

    def __init__(self, name, expected, got):
        super().__init__(f"input '{name}': expected {expected}, got {got}")
        self.name = name
        self.expected = expected
        self.got = got


class RunError(ExportError):
    """A runtime could not compute a signature, or gave something else than the manifest says.

    Args:
        backend: name of the format.
        signature: name of the signature.
        reason: what the runtime said.
    """

    def __init__(self, backend, signature, reason):
        super().__init__(f"{backend}: signature '{signature}' cannot be computed: {one_line(reason)}")
        self.backend = backend
        self.signature = signature
        self.reason = str(reason)


class MissingLibraryError(ExportError, ImportError):
    """A runtime, or a library that a tokenizer needs, is not installed.

    Args:
        what: what needs it.
        library: the name under which pip installs it.
        extra: the extra of this package that brings it, or None.
    """

    def __init__(self, what, library, extra=None):
        command = f"pip install {library}" if extra is None else install_command(extra)
        super().__init__(f"{what} needs {library}: {command}")
        self.library = library


class UnknownFormatError(ExportError):
    """A format (or backend) name that does not exist.

    Args:
        name: the name given.
        valid: the names that exist.
    """

    def __init__(self, name, valid):
        super().__init__(f"unknown format '{name}'; valid: {', '.join(valid)}")
        self.name = name
        self.valid = tuple(valid)


class QuantizationError(ExportError):
    """Quantization was asked for in a way that cannot be had, or costs the task more than the caller allows."""


class OutOfSpaceError(ExportError):
    """The disk filled up while a bundle was being written; nothing of it was kept."""

    def __init__(self, directory):
        super().__init__(f"no space left on the device that holds '{directory}'")
        self.directory = str(directory)


def one_line(reason, limit=300):
    """First line with content of an exception or text, cut to `limit` characters."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    text = lines[0] if lines else type(reason).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
