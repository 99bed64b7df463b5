"""The export spec of a target: the signatures of fixed shapes alone, under the names of the general ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import MissingLibraryError, TargetError
from keras_transformer.export.formats import DEFAULT_FORMATS, check_formats, formats_with
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.generation_record import STATIC_LENGTH
from keras_transformer.export.spec.static_signatures import static_signatures

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.data.export_spec import ExportSpec, Signature
    from keras_transformer.export.options import ExportOptions
    from keras_transformer.export.quantization.options import Quantization
    from keras_transformer.export.targets.target import Target

_BATCH = "batch"
Sizes = Mapping[str, int] | Iterable[Mapping[str, int]] | None


def with_defaults(target: Target, axes: Iterable[str], static: Sizes) -> list[dict[str, int]]:
    """The sizes of the signatures of a target: those that were given, with a batch of 1.

    Args:
        target: `Target`.
        axes: names of the dynamic axes of the model.
        static: `static` of `ExportOptions`.

    Raises:
        TargetError: the size of another axis than the batch was not given.

    Example:

    >>> from keras_transformer.export.targets import get_target
    >>> with_defaults(get_target("qnn"), ["batch", "length"], {"length": 128})
    [{'batch': 1, 'length': 128}]
    """
    axes = list(axes)
    given: list[Any] = [static] if isinstance(static, Mapping) else list(static or [{}])
    sizes = [{**({_BATCH: 1} if _BATCH in axes else {}), **each} for each in given]
    for each in sizes:
        missing = [axis for axis in axes if axis not in each]
        if missing:
            example = ", ".join(f'"{axis}": {1 if axis == _BATCH else 128}' for axis in axes)
            raise TargetError(
                target.name,
                f"it runs fixed shapes only, and the size of {' and '.join(map(repr, missing))} is not given",
                Remedy.SIZES,
                example=example,
            )
    return sizes


def target_formats(target: Target, formats: str | Iterable[str]) -> list[str]:
    """The one format of a target.

    Args:
        target: `Target`.
        formats: `formats` of `export`: all of them by default.

    Raises:
        TargetError: others were asked for.
        UnknownFormatError: a format does not exist.
    """
    names = check_formats(formats)
    if names != [target.format] and set(DEFAULT_FORMATS) - set(names):
        raise TargetError(target.name, f"it runs {target.format} files, not {', '.join(names)}", Remedy.FORMATS)
    return [target.format]


def check_precisions(target: Target, precisions: Iterable[Quantization | None]) -> None:
    """Refuses quantizations that a target does not run.

    Args:
        target: `Target`.
        precisions: iterable of `Quantization` or None.

    Raises:
        TargetError: names the mode, and those that it runs.
    """
    for each in precisions:
        mode = None if each is None else each.mode
        if mode not in target.precisions:
            valid = ", ".join(repr(name or "float32") for name in target.precisions)
            raise TargetError(target.name, f"it does not run quantize={mode!r}; it runs {valid}")


def check_libraries(target: Target) -> None:
    """Refuses a target that stands alone where its libraries are not installed.

    Args:
        target: `Target`.

    Raises:
        MissingLibraryError: names the library, and the extra that brings it.
    """
    missing = next((each for each in target.libraries if not each.is_installed), None)
    if target.stands_alone and missing is not None:
        raise MissingLibraryError(f"target '{target.name}'", missing.distribution, target.name)


def check_sizes(target: Target, model: keras.Model, options: ExportOptions) -> None:
    """Refuses an export whose sizes are not all known, before anything is computed.

    Args:
        target: `Target`.
        model: Functional or Sequential Keras model.
        options: `ExportOptions` of the export.

    Raises:
        TargetError: a size is missing.
        InvalidModelError: the model is not functional or not built.
    """
    from keras_transformer.export.spec.functional import check_model, input_specs

    inputs = input_specs(check_model(model), options.dynamic_axes or {}, options.has_one_length)
    axes = list(dict.fromkeys(axis for each in inputs for axis in each.axes if axis))
    if axes:
        with_defaults(target, axes, options.static)


def fixed_spec(spec: ExportSpec, target: Target, static: Sizes) -> ExportSpec:
    """The spec of a model's forward pass for a target.

    Args:
        spec: `ExportSpec` with one signature.
        target: `Target`.
        static: `static` of `ExportOptions`.

    Returns:
        An `ExportSpec` whose first signature keeps the name `serve`, and has the first of the sizes.

    Raises:
        TargetError: a size is missing.
        InvalidModelError: a size is wrong, or the model fails with it.
    """
    name, signature = next(iter(spec.signatures.items()))
    axes = list(dict.fromkeys(axis for each in signature.inputs for axis in each.axes if axis))
    if not axes:
        return _only(spec, target, {name: signature})
    found = static_signatures(spec, with_defaults(target, axes, static)).signatures
    fixed = [(key, each) for key, each in found.items() if each.general == name]
    return _only(spec, target, {name if number == 0 else key: each for number, (key, each) in enumerate(fixed)})


def fixed_language_spec(spec: ExportSpec, target: Target, slots: int) -> ExportSpec:
    """The spec of a language model for a target: `prefill_32`, `decode_1` and the like.

    Args:
        spec: `ExportSpec` of a language model.
        target: `Target`.
        slots: int: number of slots of the cache.

    Raises:
        TargetError: the model reads its prompts in one call, which the signatures of fixed shapes do not.
    """
    whole = next((layer for layer in spec.layers if getattr(layer, "reads_prompts_whole", False)), None)
    if whole is not None:
        raise TargetError(
            target.name,
            f"'{whole.name}' is of a prefix language model, which reads a prompt in one call: there are no signatures of "
            "fixed shapes",
        )
    fixed = formats_with("takes_fixed_shapes")
    found = {key: each for key, each in spec.signatures.items() if each.formats == fixed}
    record = {**(spec.generation or {}), STATIC_LENGTH: slots}
    return dataclasses.replace(_only(spec, target, found), generation=record)


def _only(spec: ExportSpec, target: Target, signatures: Mapping[str, Signature]) -> ExportSpec:
    if target.stands_alone and len(signatures) > 1:
        named = ", ".join(map(repr, signatures))
        raise TargetError(
            target.name, f"a file has one signature there, not {named}: pass one dict of sizes, or generation=False"
        )
    changed = {
        key: dataclasses.replace(each, formats=(target.format,), general=None) for key, each in signatures.items()
    }
    # A signature computes the same as the general one, which was called twice.
    for each in changed.values():
        each.is_repeatable = True
    # Files for accelerators take what preprocessing makes.
    return dataclasses.replace(spec, preprocessed={}, signatures=changed, target=target)
