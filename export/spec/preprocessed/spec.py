"""Export specs of models whose preprocessing is cut off where a format cannot contain it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data.export_spec import ExportSpec, PreprocessedSignature, Probe, Signature
from keras_transformer.export.data.preprocessing.layers import TextVectorization
from keras_transformer.export.data.preprocessing.steps import Preprocessing
from keras_transformer.export.formats import formats_with
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.runtime.preprocessing import preprocessor
from keras_transformer.export.spec import names, vocabulary
from keras_transformer.export.spec.functional import (
    SERVE,
    check_model,
    functional_spec,
    input_specs,
    serving_function,
)
from keras_transformer.export.spec.preprocessed.split_model import SplitModel, has_preprocessing, split_for
from keras_transformer.export.spec.probes import fill_references
from keras_transformer.export.spec.probing.model_probes import add_further_probes, add_generated_probes, probes_of
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    import keras

_Axes = Mapping[str, Mapping[int, str]]


def forward_spec(
    model: keras.Model,
    formats: Sequence[str],
    tolerance: float | None = None,
    probes: Sequence[Mapping[str, ArrayLike]] | None = None,
    dynamic_axes: _Axes | None = None,
    one_length: bool = False,
) -> ExportSpec:
    """`functional_spec` of a Functional model that may have preprocessing.

    Where it has, the signature is the part behind the preprocessing; beside it is the whole one, for formats that can
    contain it. Where a layer of strings has no step, the signature is the whole one, and only formats that take strings have
    it.

    Args:
        model, tolerance, probes, dynamic_axes, one_length: as of `functional_spec`.
        formats: names of the formats that are written.

    Raises:
        UnsupportedOpError: neither a format nor a step in front of its files computes a layer of strings.
        InvalidModelError: an argument does not fit the model, or it fails on a probe.
    """
    model, dynamic_axes = check_model(model), dynamic_axes or {}
    if not has_preprocessing(model):
        return functional_spec(model, tolerance, probes, dynamic_axes, one_length)
    split = split_for(model, formats)
    outputs = names.output_names(model)
    named = names.input_names(model)
    inputs = input_specs(model, _axes_of(dynamic_axes, named), one_length)
    whole = Signature(serving_function(model, inputs, outputs), inputs, probes_of(model, inputs, probes))
    fill_references(whole)
    if probes is not None:
        add_generated_probes(model, whole)
    else:
        add_further_probes(model, whole)
    if split is None:
        return _whole_spec(model, whole, tolerance)
    axes = _length_axes(split) | dict(_axes_of(dynamic_axes, [each.name for each in split.core.inputs]))
    preprocessing = Preprocessing(tuple(split.steps), input_specs(split.core, axes))
    preprocess = preprocessor(preprocessing, split.vocabularies)
    arrays = [preprocess(each.inputs) for each in whole.probes]
    spec = functional_spec(split.core, tolerance, arrays, axes, one_length, outputs, generates=False)
    _add_further(whole, spec.signatures[SERVE], preprocess)
    return dataclasses.replace(
        spec,
        modules=vocabulary.lookup_tables(model),
        layers=tuple(dict.fromkeys([*layers_in_order(model), *spec.layers])),
        preprocessed={SERVE: PreprocessedSignature(whole, preprocessing, split.vocabularies)},
    )


def _add_further(
    whole: Signature, part: Signature, preprocess: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
) -> None:
    """Gives the part behind the preprocessing the further probes of the whole."""
    part.further = [Probe(preprocess(each.inputs), each.label, region=each.region) for each in whole.further]
    part.not_shown = whole.not_shown
    fill_references(dataclasses.replace(part, probes=part.further, is_repeatable=True), may_be_nan=True)


def _axes_of(dynamic_axes: _Axes, named: Iterable[str]) -> _Axes:
    return {name: dynamic_axes[name] for name in named if name in dynamic_axes}


def _length_axes(split: SplitModel) -> dict[str, Mapping[int, str]]:
    """Names of the lengths of texts, each its own where there are several."""
    texts = [each.output for each in split.steps if isinstance(each.operation, TextVectorization)]
    free = [each.name for each in split.core.inputs if each.name in texts and each.shape[1] is None]
    return {name: {1: f"{name}_length"} for name in free} if len(texts) > 1 else {}


def _whole_spec(model: keras.Model, whole: Signature, tolerance: float | None) -> ExportSpec:
    whole.formats = formats_with("takes_text")
    return ExportSpec(
        {SERVE: whole},
        tolerance,
        locator(model),
        tuple(model.variables),
        modules=vocabulary.lookup_tables(model),
        layers=tuple(layers_in_order(model)),
    )
