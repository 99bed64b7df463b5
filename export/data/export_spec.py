"""The specification of an export: named signatures, each a callable with named, typed, partly dynamic inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.checks import IncompleteError, is_names, is_number, is_object
from keras_transformer.export.data.preprocessing.steps import Preprocessing
from keras_transformer.utils.types import JsonObject, Tensor

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# Names in lists and dicts.
Structure: TypeAlias = "str | Sequence[Structure] | Mapping[str, Structure]"
# What rounding may make of logits, as a share of their scale, where two ways through a deep model are compared.
STEPWISE_TOLERANCE = 1e-4


@dataclasses.dataclass
class Probe:
    """One set of inputs on which every artifact must agree with the reference.

    Args:
        inputs: dict of input name to numpy array.
        label: a short description, for reports and errors.
        outputs: dict of output name to numpy array, as the reference computes them.
        rounding: dict of output name to how far another rounding moves it, for each block; see `measure_rounding`.
        measure: measures the rounding where `rounding`, which may be an estimate, does not suffice; or None.
        origin: dict of output name to what the model computes that was handed over, where another one is exported in its
            place and this probe compares them.
        region: of its values, such as "large"; "" for usual ones.

    Example:

    >>> probe = Probe({"x": np.ones((2, 4), "float32")}, "batch=2")
    >>> probe.inputs["x"].shape, probe.outputs
    ((2, 4), {})
    """

    inputs: dict[str, np.ndarray]
    label: str
    outputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict[str, np.ndarray])
    rounding: dict[str, np.ndarray] = dataclasses.field(default_factory=dict[str, np.ndarray])
    measure: Callable[[], dict[str, np.ndarray]] | None = None
    origin: dict[str, np.ndarray] = dataclasses.field(default_factory=dict[str, np.ndarray])
    region: str = ""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The model that was handed over, where another one is exported in its place.

    Args:
        steps: how that was made of it, such as "merged adapters".
        unit: the rounding of the precision in which it computes, as a multiple of that of float32.
    """

    steps: tuple[str, ...]
    unit: float = 1.0


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How many branches of a graph all probes together reach.

    Args:
        count: number of comparisons, selections, maxima, rectifiers and steps that depend on the inputs.
        reached: of these, those that take both sides.
        missing: names of the layers of the others, with their operations.

    Example:

    >>> str(Coverage(3, 2, ("Maximum of 'normalization'",)))
    "2 of 3 branches take both sides; not Maximum of 'normalization'"
    """

    count: int
    reached: int
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        return {"count": self.count, "reached": self.reached, "missing": list(self.missing)}

    @classmethod
    def from_dict(cls, record: object, where: str) -> Coverage:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the record, for the error.

        Raises:
            IncompleteError: a field is missing or of another type.
        """
        fields = record if is_object(record) else {}
        numbers = [each for name in ("count", "reached") if is_number(each := fields.get(name))]
        missing = fields.get("missing")
        if len(numbers) < 2 or not is_names(missing):
            raise IncompleteError(f"{where}: coverage")
        return cls(int(numbers[0]), int(numbers[1]), tuple(missing))

    def __str__(self) -> str:
        rest = f"; not {', '.join(self.missing)}" if self.missing else ""
        return f"{self.reached} of {self.count} branches take both sides{rest}"


@dataclasses.dataclass
class Signature:
    """One named entry point of the exported model.

    Args:
        function: maps a dict of named TensorFlow tensors to a dict of named tensors; pure.
        inputs: tuple of `ArraySpec`.
        probes: list of `Probe`, which the bundle keeps.
        outputs: tuple of `ArraySpec`; filled when the signature is traced.
        formats: names of the formats that have it; all of them when None.
        general: name of the signature that computes the same for any shapes; None for this one.
        is_repeatable: bool. Whether it is known that a second call returns the same.
        labels: dict of output name to the key of the model's own dict of outputs, where that is no identifier.
        states: names of the inputs and outputs in which the state of the model goes from call to call.
        draws: dict of the name of an input of random numbers to their distribution, `"normal"` or `"uniform"`.
        structure: the names of the inputs of the model in the structure in which `ExportOptions(inputs=...)` has them;
            nothing where that does not apply.
        further: list of `Probe` on which float files are compared while they are exported; they are not kept in the bundle.
        not_shown: label and reason of each further probe that was left out: the model itself does not take it.
        coverage: `Coverage` of the branches of the graph by all probes, or None where it is not measured.
        without_effect: a line for each input that changed nothing in some output.

    Example:

    >>> inputs = (ArraySpec("x", "float32", (None,), ("batch",)),)
    >>> probes = [Probe({"x": np.ones(3, "float32")}, "batch=3")]
    >>> doubled = Signature(lambda tensors: {"y": 2 * tensors["x"]}, inputs, probes)
    >>> doubled.function(probes[0].inputs)
    {'y': array([2., 2., 2.], dtype=float32)}
    """

    function: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    inputs: tuple[ArraySpec, ...]
    probes: list[Probe]
    outputs: tuple[ArraySpec, ...] = ()
    formats: tuple[str, ...] | None = None
    general: str | None = None
    is_repeatable: bool = False
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    states: tuple[str, ...] = ()
    draws: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    structure: Structure = ()
    further: list[Probe] = dataclasses.field(default_factory=list[Probe])
    not_shown: list[str] = dataclasses.field(default_factory=list[str])
    coverage: Coverage | None = None
    without_effect: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def all_probes(self) -> list[Probe]:
        """list of `Probe`: those that the bundle keeps, and the further ones."""
        return [*self.probes, *self.further]


@dataclasses.dataclass
class PreprocessedSignature:
    """What a signature is to its caller, where files have only the part behind its preprocessing.

    Args:
        signature: `Signature` of the whole model, for formats that contain the preprocessing.
        preprocessing: `Preprocessing` from its inputs to those of the signature of the spec, whose probes are in the same
            order.
        vocabularies: dict of path in the bundle to the tokens of a lookup.
    """

    signature: Signature
    preprocessing: Preprocessing
    vocabularies: dict[str, list[str] | list[int]]


@dataclasses.dataclass
class ExportSpec:
    """What the formats write to a bundle: signatures, tolerance and options.

    Args:
        signatures: dict of signature name to `Signature`. The first is the default one.
        tolerance: largest difference allowed, as a share of each output's largest absolute value; None for what the
            rounding of the model explains.
        variables: the Keras variables that the functions read. With them, ONNX files share one file of weights.
        layers: the Keras layers that the functions call, each before its parts. Those that repeat are traced once.
        modules: `tf.Module`s whose resources the functions use.
        generation: the manifest's record of generation, or None.
        quantization: the `Quantization` that a format's files are quantized by, one after another; None for float files.
        evaluation: `Evaluation` of the quantized files, or None.
        runs_floats: bool. Whether the float files are run; see `request.LARGEST_RUN`.
        folds_factors: bool. Whether constants that a product is multiplied by may go into its weights, which then have
            other values than the variables.
        onnx: `OnnxOptions`, or None for the defaults.
        target: `Target` whose operators the files are made of, or None.
        metadata: dict of JSON values that describe the model, for the manifest and for the files' own metadata.
        tokenizer: the tokenizer of the bundle, or None.
        tokenizer_options: dict of how texts are encoded, or None.
        axis_limits: dict of axis name to the largest size that the layers of the model allow, if limited.
        preprocessed: dict of the name of a signature to its `PreprocessedSignature`, if it has any.
        origin: `Origin` of the model, which some probes compare with; None where it is the model that was handed over.
        locate: maps `(op type, node name)` of a traced graph to the name of the layer it came from.

    Example:

    >>> scores = Signature(lambda tensors: tensors, (), [])
    >>> rows = Signature(lambda tensors: tensors, (), [], formats=("onnx",))
    >>> ExportSpec({"scores": scores, "rows": rows}).names("tflite")
    ['scores']
    """

    signatures: dict[str, Signature]
    tolerance: float | None = None
    locate: Callable[[str, str], str] = lambda op, node: node
    variables: tuple[keras.Variable, ...] = ()
    generation: JsonObject | None = None
    modules: tuple[tf.Module, ...] = ()
    layers: tuple[keras.layers.Layer, ...] = ()
    quantization: Any = None
    evaluation: Any = None
    runs_floats: bool = True
    folds_factors: bool = True
    onnx: Any = None
    target: Any = None
    metadata: JsonObject = dataclasses.field(default_factory=dict[str, Any])
    tokenizer: Any = None
    tokenizer_options: Mapping[str, Any] | None = None
    axis_limits: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    preprocessed: dict[str, PreprocessedSignature] = dataclasses.field(default_factory=dict[str, PreprocessedSignature])
    origin: Origin | None = None

    def only(self, formats: Iterable[str]) -> ExportSpec:
        """The spec without the signatures that belong to none of these formats."""
        kept = {name for format in formats for name in self.names(format)}
        signatures = {key: each for key, each in self.signatures.items() if key in kept}
        preprocessed = {key: each for key, each in self.preprocessed.items() if key in kept}
        return dataclasses.replace(self, signatures=signatures, preprocessed=preprocessed)

    def names(self, format: str) -> list[str]:
        """Names of the signatures that a format has."""
        return [name for name, each in self.signatures.items() if each.formats is None or format in each.formats]

    def carried(self, name: str) -> set[str]:
        """Names of the inputs and outputs of a signature that go from call to call: a cache, a memory, a state."""
        generation = self.generation or {}
        return {*generation.get("cache", ()), *generation.get("memory", ()), *self.signatures[name].states}

    def whole(self) -> ExportSpec:
        """The spec of files that contain the preprocessing."""
        whole = {key: each.signature for key, each in self.preprocessed.items()}
        return dataclasses.replace(self, signatures=self.signatures | whole, preprocessed={})

    def usual(self) -> ExportSpec:
        """The spec without further probes of unusual values: what quantized files are compared on."""

        def usual(each: Signature) -> Signature:
            return dataclasses.replace(
                each, further=[probe for probe in each.further if not probe.region], coverage=None
            )

        whole = {
            name: dataclasses.replace(each, signature=usual(each.signature)) for name, each in self.preprocessed.items()
        }
        signatures = {name: usual(each) for name, each in self.signatures.items()}
        return dataclasses.replace(self, signatures=signatures, preprocessed=whole)

    def probes(self, further: bool = False) -> dict[str, list[Probe]]:
        """The probes of every signature, with the inputs of the whole model.

        Args:
            further: bool. Whether the further ones, which the bundle does not keep, are among them.
        """
        found = {name: each.all_probes if further else each.probes for name, each in self.signatures.items()}
        for name, each in self.preprocessed.items():
            whole = each.signature.all_probes if further else each.signature.probes
            pairs = zip(whole, found[name], strict=True) if name in found else ()
            found |= {
                name: [dataclasses.replace(one, rounding=part.rounding, measure=part.measure) for one, part in pairs]
            }
        return found
