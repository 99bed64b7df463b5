"""What a call of `export` asks for, checked against the model and with its defaults filled in."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle import writing
from keras_transformer.export.errors import InvalidModelError, MissingLibraryError, QuantizationError
from keras_transformer.export.formats import FORMATS, check_formats
from keras_transformer.export.options import ExportOptions
from keras_transformer.export.quantization import kept, ternary
from keras_transformer.export.quantization.options import PRECISIONS, Quantization, Ternary
from keras_transformer.export.quantization.precisions import Mode, Modes, precisions_of
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec.keras_hub.task import is_causal_lm, tokenizer_of
from keras_transformer.export.targets import get_target
from keras_transformer.export.targets.fixed_shapes import check_libraries, check_precisions, check_sizes, target_formats
from keras_transformer.utils.types import Arrays, Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.targets.target import Target
    from keras_transformer.text import Tokenizer

# Bytes of the weights in float32: the float files of a larger model are not run where they are only quantized. They are
# compared with the variables weight by weight, and the Keras model itself predicts what quantized files are held to.
LARGEST_RUN = 2**31


def check_is_layer(model: object) -> None:
    """Refuses what is no Keras model or layer, such as a path.

    Raises:
        InvalidModelError: says how a path is loaded.
    """
    import keras

    if isinstance(model, (str, bytes, os.PathLike)):
        raise InvalidModelError(f"model must be a Keras model, not the path '{os.fsdecode(model)}'", Remedy.PATH)
    if not isinstance(model, keras.layers.Layer):
        raise InvalidModelError(f"model must be a Keras model or layer, not {type(model).__name__}")


@dataclasses.dataclass(frozen=True)
class Request:
    """What is written, and where.

    Args:
        directory: absolute path of the bundle, or of the folders of several.
        formats: names of the formats, in the order in which they are written.
        precisions: a `Quantization` of each bundle, None for float files.
        has_folders: bool. Whether each precision has a folder that is named after it.
        tokenizer: the tokenizer of the bundle, or None.
        probes: `probes` of `export`.
        options: `ExportOptions` with the defaults of the model.
        target: `Target`, or None.
        runs_floats: bool. Whether the float files are run, and not only compared weight by weight.
        folds_factors: bool. Whether constants that a product is multiplied by may go into its weights.
    """

    directory: pathlib.Path
    formats: list[str]
    precisions: list[Quantization | None]
    has_folders: bool = False
    tokenizer: Tokenizer | None = None
    probes: Sequence[Arrays] | None = None
    options: ExportOptions = dataclasses.field(default_factory=ExportOptions)
    target: Target | None = None
    runs_floats: bool = True
    folds_factors: bool = True

    @property
    def quantize(self) -> list[Quantization | None] | Quantization | None:
        """The precisions as an argument of `export`."""
        return self.precisions if self.has_folders else self.precisions[0]


def request_of(
    model: keras.Model,
    directory: Path,
    formats: str | Iterable[str],
    quantize: Mode | Modes | None,
    tokenizer: Tokenizer | None,
    probes: Sequence[Arrays] | None,
    options: ExportOptions,
) -> Request:
    """Checks all arguments of `export` before anything is computed.

    Raises:
        ExportError: any of those that `export` names.
    """
    target = None if options.target is None else get_target(options.target)
    names = target_formats(target, formats) if target else check_formats(formats)
    _check_libraries(names)
    if probes is not None:
        _check_probes(probes, model)
    has_folders = isinstance(quantize, (list, tuple))
    path = writing.check_target(directory, PRECISIONS if has_folders else ())
    is_ternary = ternary.has_ternary_layers(model)
    precisions = precisions_of(Ternary() if quantize is None and is_ternary else quantize, model)
    if options.evaluation is not None and not any(precisions):
        raise QuantizationError("evaluation measures quantization", Remedy.QUANTIZE)
    if target:
        check_libraries(target)
        check_precisions(target, precisions)
        if not generates(model, options):
            check_sizes(target, model, options)
    tokenizer = tokenizer or _own_tokenizer(model, options)
    keeps_weights = any(isinstance(each, kept.KEPT) for each in precisions)
    return Request(
        path,
        names,
        precisions,
        has_folders,
        tokenizer,
        probes,
        _with_defaults(options, model, tokenizer, target, is_ternary),
        target,
        runs_floats=is_ternary or runs_float_files(model, names, precisions),
        folds_factors=not keeps_weights and getattr(model, "quantized_weights", None) is None,
    )


def _check_probes(probes: object, model: keras.Model) -> None:
    from keras_transformer.backend import keras_private
    from keras_transformer.export.spec.names import input_names
    from keras_transformer.export.spec.probes import check_given

    check_given(probes, input_names(keras_private.functional(model)))


def _check_libraries(formats: Iterable[str]) -> None:
    """Refuses formats whose files could not be verified here."""
    for name in formats:
        library = FORMATS[name].library
        if not library.is_installed:
            raise MissingLibraryError(f"format '{name}'", library.distribution)


def generates(model: keras.Model, options: ExportOptions) -> bool:
    """Whether the signatures are those of a language model that generates."""
    return options.generation is not False and (hasattr(model, "generation_spec") or is_causal_lm(model))


def _own_tokenizer(model: keras.Model, options: ExportOptions) -> Tokenizer | None:
    """The tokenizer that a model brings."""
    if is_causal_lm(model):
        return tokenizer_of(model) if generates(model, options) else None
    return getattr(model, "tokenizer", None)


def _with_defaults(
    options: ExportOptions, model: keras.Model, tokenizer: Tokenizer | None, target: Target | None, is_ternary: bool
) -> ExportOptions:
    """The options with what follows from the model and the target."""
    changes: dict[str, Any] = {}
    if options.tokenizer_options is None and not generates(model, options) and not hasattr(model, "generation_spec"):
        changes["tokenizer_options"] = getattr(tokenizer, "template_options", None)
    if options.onnx is None and target is not None:
        changes["onnx"] = target.onnx
    if is_ternary:
        changes["tolerance"] = max(options.tolerance or 0.0, ternary.TOLERANCE)
    return dataclasses.replace(options, **changes)


def runs_float_files(model: keras.Model, formats: Iterable[str], precisions: Sequence[Quantization | None]) -> bool:
    """Whether the float files are run: those of models up to 2 GB, and where they are part of what is written."""
    if None in precisions or not all(FORMATS[name].takes_large_weights for name in formats):
        return True
    return 4 * sum(math.prod(variable.shape) for variable in model.variables) <= LARGEST_RUN
