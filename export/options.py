"""The options of `export`, by topic."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from keras_transformer.export.bundle.metadata import check_metadata
from keras_transformer.export.bundle.tokenizers import check_options
from keras_transformer.export.data.short_repr import short_repr, short_value
from keras_transformer.export.data.tables import Table, html_of
from keras_transformer.export.errors import ExportError, OptionsError, QuantizationError
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.targets import get_target
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.utils.choice import suggestion
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.export.spec.language.spec import GenerationOptions
    from keras_transformer.export.spec.method_signatures import Method
    from keras_transformer.export.targets.target import Target

_Record = TypeVar("_Record")
# Data and objects, which a file of options does not contain.
_DATA = ("evaluation", "inputs", "signatures")
_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "signatures": (
        Mapping,
        "a dict of signature name to a method of the model, or to a tuple of a method and its inputs",
    ),
    "dynamic_axes": (Mapping, "a dict of input name to a dict of axis index to axis name"),
    "static": ((Mapping, Sequence), "a dict of axis name to size, or a list of such dicts"),
    "tokenizer_options": (Mapping, "a dict"),
    "onnx": (OnnxOptions, "OnnxOptions"),
}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ExportOptions:
    """Options of `export` that most models do without.

    Args:
        inputs: `keras.InputSpec` or `keras.Input` of each input of a subclassed model, of a layer, or of a Sequential model
            without an `Input`: in the structure that the first argument of `call` takes, or in a dict by the names of its
            arguments, such as `{"x": keras.InputSpec(shape=(None, 8)), "mask": keras.InputSpec(shape=(None, 8),
            dtype="bool")}`. By default the shapes that it was built with, for any batch.
        signatures: dict of name to further entry points beside `serve`, such as `{"encode": model.encode}`: methods of the
            model that take what its `call` takes, or a tuple of a method and its inputs, as `inputs` takes them.
        dynamic_axes: dict of input name to a dict of axis index to axis name; inputs that share a name share a size. By
            default `batch`, then `length` (or `height` and `width`).
        static: dict of axis name to size, such as `{"batch": 1, "length": 128}`, or a list of such dicts: TFLite has a copy
            of the signature for these shapes, `serve_1x128`, which `load` uses by itself and phones' GPUs need. Those of a
            `LanguageModel` are set by `generation`.
        generation: `GenerationOptions` of a `LanguageModel`; False to write its one forward pass, `serve`, instead.
        tokenizer_options: dict of how texts are encoded: "start", "end", "max_length"; see `Tokenizer.encode`. By default
            with the special tokens of the template of a Hugging Face tokenizer, and without any of another one.
        tolerance: largest difference allowed, as a share of each output's largest absolute value. By default it follows
            from the model: each row of each output may differ by 6 times what rounding every operation differently moves
            it by. At least 0.1 for a model with ternary weights, which amplify differences: see `feedforward.BitDense`.
        evaluation: `Evaluation`: the loss that quantization may cause.
        metadata: dict that describes the model, JSON values only: `model.metadata` of a loaded bundle, and part of the ONNX
            and TFLite files. "description" is a str, "class_names" a list of str, "inputs" a dict of input name to a dict
            of "description", "range", "mean" and "std" (the model takes `(value - mean) / std`); other keys are free.
        onnx: `OnnxOptions`: opset, and what the optimizer may use; None for files that every supported ONNX Runtime takes.
        target: a key of `TARGETS`, `"litert-gpu"`, `"xnnpack"`, `"qnn"`, `"openvino"`, `"coreml"`, `"webgpu"`, or, for
            microcontrollers, `"micro"`, `"ethos-u"` or `"edgetpu"`; or a `Target` with options, such as
            `EthosU("ethos-u85-256", least_share=0.95)`: one file in the accelerator's format, of the fixed shapes of
            `static` (batch 1 unless given) and of the operators that it has. Where the accelerator's library is installed
            the file is run on it, or on its simulator, and compared with the CPU; `report.target` says what was taken, what
            falls back, and what was not run.

    Raises:
        OptionsError: an option is not of its type.
        ExportError: the tolerance is not positive, or the metadata is no dict of JSON values.
        InvalidModelError: `Tokenizer.encode` does not have an option.
        QuantizationError: the evaluation is no `Evaluation`.
        UnknownTargetError: a target does not exist.

    Example:

    >>> ExportOptions(static={"batch": 1}, target="litert-gpu")
    ExportOptions(static={'batch': 1}, target='litert-gpu')
    """

    # Entry points.
    inputs: Any = None
    signatures: Mapping[str, Method] | None = None
    # Shapes.
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None
    static: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None
    # Text.
    generation: GenerationOptions | bool | None = None
    tokenizer_options: Mapping[str, Any] | None = None
    # Proof.
    tolerance: float | None = None
    evaluation: Evaluation | None = None
    # Files.
    metadata: dict[str, Any] | None = None
    onnx: OnnxOptions | None = None
    target: str | Target | None = None

    def __post_init__(self) -> None:
        number = self.tolerance
        if number is not None and (not isinstance(number, (int, float)) or not 0 < number < float("inf")):
            raise ExportError(f"tolerance must be a positive number. Received: {number!r}")
        if self.evaluation is not None and not isinstance(self.evaluation, Evaluation):
            raise QuantizationError(f"evaluation must be an Evaluation. Received: {type(self.evaluation).__name__}")
        for name, (kinds, what) in _TYPES.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, str) or not isinstance(value, kinds)):
                raise OptionsError(f"{name} must be {what}. Received: {value!r}")
        check_metadata(self.metadata)
        check_options(self.tokenizer_options)
        if self.target is not None:
            get_target(self.target)

    @property
    def has_one_length(self) -> bool:
        """bool: whether `static` has a size of the axis `length`, so that all sequences share it."""
        sizes = [self.static] if isinstance(self.static, Mapping) else self.static or ()
        return any("length" in each for each in sizes)

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        rows = [(each.name, short_value(getattr(self, each.name))) for each in dataclasses.fields(self)]
        given = [(name, value) for name, value in rows if value != "None"]
        left = ", ".join(name for name, value in rows if value == "None")
        return html_of([Table(("option", "value"), given), f"by default: {left}"])

    @classmethod
    def from_file(cls, path: Path) -> ExportOptions:
        """Options from a TOML file, whose keys are the names of the arguments; it has no `evaluation`,
        `inputs` and `signatures`, which are data and objects.

        Tables are dicts, such as `static = {batch = 1}`; `[generation]` has the arguments of `GenerationOptions`, `[onnx]`
        those of `OnnxOptions`, and `[dynamic_axes.x]` lines such as `0 = "batch"`.

        Args:
            path: str or path of the file.

        Raises:
            OptionsError: the file does not exist, is no TOML, or has a key that is no option.

        Example:

        >>> _ = pathlib.Path("/tmp/keras_transformer_doctest.toml").write_text("static = {batch = 1}")
        >>> ExportOptions.from_file("/tmp/keras_transformer_doctest.toml")
        ExportOptions(static={'batch': 1})
        """
        try:
            content = tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise OptionsError(f"no such file: '{path}'") from error
        except ValueError as error:
            raise OptionsError(f"'{path}' is not a TOML file: {error}") from error
        valid = [field.name for field in dataclasses.fields(cls) if field.name not in _DATA]
        _check_keys(content, valid, f"'{path}'")
        if isinstance(content.get("generation"), dict):
            from keras_transformer.export.spec.language.spec import GenerationOptions

            content["generation"] = _record(GenerationOptions, content["generation"], f"'{path}': [generation]")
        if "onnx" in content:
            content["onnx"] = _record(OnnxOptions, content["onnx"], f"'{path}': [onnx]")
        if "dynamic_axes" in content:
            content["dynamic_axes"] = _axes(content["dynamic_axes"], f"'{path}': [dynamic_axes]")
        return cls(**content)


def _check_keys(content: Mapping[str, object], valid: Sequence[str], where: str) -> None:
    for key in content:
        if key not in valid:
            raise OptionsError(f"{where} has no option {key!r}; valid: {', '.join(valid)}{suggestion(key, valid)}")


def _record(cls: type[_Record], table: object, where: str) -> _Record:
    """An instance of a dataclass from a table of its arguments."""
    if not isinstance(table, dict):
        raise OptionsError(f"{where} must be a table. Received: {table!r}")
    _check_keys(table, [field.name for field in dataclasses.fields(cls)], where)  # type: ignore[arg-type]
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in table.items()})


def _axes(table: Any, where: str) -> dict[str, dict[int, str]]:
    """The names of axes by index: the keys of TOML are text."""
    try:
        return {name: {int(index): str(axis) for index, axis in axes.items()} for name, axes in table.items()}
    except (AttributeError, ValueError) as error:
        raise OptionsError(
            f'{where} takes tables by input, with lines such as 0 = "batch". Received: {table!r}'
        ) from error
