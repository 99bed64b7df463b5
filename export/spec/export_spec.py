"""What is exported: named signatures, each a callable with named, typed, partly dynamic inputs."""

import dataclasses
from collections.abc import Callable
from typing import Any

DEFAULT_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Name, dtype and shape of one input or output.

    Args:
        name: name by which the array is passed or returned.
        dtype: numpy dtype name, such as `"float32"`.
        shape: sizes; None where the size is dynamic.
        axes: for each dimension the name of the dynamic axis, or None where the size is fixed.
    """

    name: str
    dtype: str
    shape: tuple
    axes: tuple

    def to_dict(self):
        """The spec as plain lists and strings, for `manifest.json`."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape), "axes": list(self.axes)}

    @classmethod
    def from_dict(cls, record):
        """The spec that `to_dict` wrote."""
        return cls(record["name"], record["dtype"], tuple(record["shape"]), tuple(record["axes"]))

    def describe(self):
        """The spec for a human: `float32 (batch, length, 64)`."""
        sizes = [str(axis or size) for axis, size in zip(self.axes, self.shape, strict=True)]
        return f"{self.dtype} ({', '.join(sizes)})"


@dataclasses.dataclass
class Probe:
    """One set of inputs on which every artifact must agree with the reference.

    Args:
        inputs: dict of input name to numpy array.
        label: the probe in words, for reports and errors.
        outputs: dict of output name to numpy array: what the reference computes.
    """

    inputs: dict
    label: str
    outputs: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Signature:
    """One named entry point of the exported model.

    Args:
        function: maps a dict of named TensorFlow tensors to a dict of named tensors; pure.
        inputs: tuple of `ArraySpec`.
        probes: list of `Probe`.
        outputs: tuple of `ArraySpec`; filled when the signature is traced.
        formats: names of the formats that have it; all of them when None.
    """

    function: Callable
    inputs: tuple
    probes: list
    outputs: tuple = ()
    formats: tuple | None = None


@dataclasses.dataclass
class ExportSpec:
    """All that the formats need to know.

    Args:
        signatures: dict of signature name to `Signature`. The first is the default one.
        tolerance: largest difference allowed, as a share of each output's largest absolute value.
        variables: the Keras variables that the functions read. With them, ONNX files share one file of weights.
        modules: `tf.Module`s whose resources the functions use.
        generation: what a runtime needs to know to generate, or None.
        quantization: `Quantization`, or None for float files.
        evaluation: `Evaluation` of what quantization does to the task, or None.
        onnx: `OnnxOptions`, or None for the defaults.
        locate: maps `(op type, node name)` of a traced graph to the name of the layer it came from.
    """

    signatures: dict
    tolerance: float = DEFAULT_TOLERANCE
    locate: Callable = lambda op, node: node
    variables: tuple = ()
    generation: dict | None = None
    modules: tuple = ()
    quantization: Any = None
    evaluation: Any = None
    onnx: Any = None

    def only(self, formats):
        """The spec without the signatures that none of these formats has."""
        kept = {name for format in formats for name in self.names(format)}
        return dataclasses.replace(self, signatures={key: each for key, each in self.signatures.items() if key in kept})

    def names(self, format):
        """Names of the signatures that a format has."""
        return [name for name, each in self.signatures.items() if each.formats is None or format in each.formats]
