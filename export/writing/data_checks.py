"""The data of an evaluation and of calibrations, checked before anything is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.calibration_data import calibration_batches
from keras_transformer.export.quantization.options import Quantization
from keras_transformer.export.runtime.inputs import check_inputs, named_arrays
from keras_transformer.export.verification.quantized.evaluation import Evaluation, classes, whole_numbers
from keras_transformer.utils.choice import suggestion

_PIXEL = 255


def check_data(spec: ExportSpec, precisions: Iterable[Quantization | None]) -> None:
    """Checks that data fit a signature, where they can be read more than once.

    A language model has several signatures and takes texts: its data are checked where they are read.

    Args:
        spec: `ExportSpec`, with its evaluation.
        precisions: a `Quantization` of each bundle, None for float files.

    Raises:
        InputError: a batch of the evaluation does not fit the inputs.
        QuantizationError: calibration data do not, or have another scale; the evaluation names an output or a class that
            does not exist.
    """
    if spec.generation is not None:
        return
    # Data are given as the model takes them, in front of the preprocessing that formats may leave out of their files.
    signature = next(iter(spec.whole().signatures.values()))
    if spec.evaluation is not None:
        _check_evaluation(spec.evaluation, signature)
    for each in precisions:
        data = getattr(each, "calibration", None)
        if isinstance(data, (Mapping, list, tuple, np.ndarray)):
            _check_scale(calibration_batches(data, signature.inputs), signature)


def with_fitting_batches(spec: ExportSpec) -> ExportSpec:
    """The spec with an evaluation of as many rows a batch as the signature takes, where that is fixed.

    Batches that are no arrays, or no whole number of such parts, stay as they are.
    """
    evaluation = spec.evaluation
    if evaluation is None or spec.generation is not None or not len(evaluation.inputs):
        return spec
    inputs = next(iter(spec.whole().signatures.values())).inputs
    sizes = {each.shape[0] for each in inputs if each.shape}
    (size,) = sizes if len(sizes) == 1 else (None,)
    if size is None or not all(isinstance(each, (Mapping, np.ndarray)) for each in evaluation.inputs):
        return spec
    parts = [_in_parts(each, size) for each in evaluation.inputs]
    labels = evaluation.labels
    if labels is not None:
        labels = [part for each in labels for part in _in_parts(np.asarray(each), size)]
    split = [part for each in parts for part in each]
    if labels is not None and len(labels) != len(split):
        return spec
    return dataclasses.replace(spec, evaluation=dataclasses.replace(evaluation, inputs=split, labels=labels))


def _in_parts(
    batch: Mapping[str, np.ndarray] | np.ndarray, size: int
) -> Sequence[Mapping[str, np.ndarray] | np.ndarray]:
    """Parts of some rows of a batch; the batch itself where the last part would be smaller."""
    arrays = batch if isinstance(batch, Mapping) else {"": batch}
    counts = {len(each) if np.ndim(each) else 0 for each in arrays.values()}
    count = counts.pop() if len(counts) == 1 else 0
    if not count or count % size:
        return [batch]
    starts = range(0, count, size)
    parts = [{name: each[start : start + size] for name, each in arrays.items()} for start in starts]
    return parts if isinstance(batch, Mapping) else [each[""] for each in parts]


def _check_scale(batches: Iterable[Mapping[str, np.ndarray]], signature: Signature) -> None:
    """Refuses data from 0 to 1 for inputs of which the model says that they are pixels up to 255."""
    found = list(batches)
    for name in (each.name for each in signature.inputs):
        probes = [each.inputs[name] for each in signature.probes if name in each.inputs]
        data = [each[name] for each in found if name in each]
        is_number = all(each.dtype.kind in "iuf" and each.size for each in (*probes, *data))
        if not probes or not data or not is_number or _ends(probes) != (0, _PIXEL):
            continue
        least, most = _ends(data)
        if least >= -1 and most <= 1:
            raise QuantizationError(
                f"the calibration data of '{name}' go from {least:.4g} to {most:.4g}, and the model takes pixels from 0 to "
                f"{_PIXEL}, which it scales itself: give data as the model takes them"
            )


def _ends(arrays: Iterable[np.ndarray]) -> tuple[float, float]:
    found = [(float(each.min()), float(each.max())) for each in arrays]
    return min(each[0] for each in found), max(each[1] for each in found)


def _check_evaluation(evaluation: Evaluation, signature: Signature) -> None:
    inputs, found = signature.inputs, [name for probe in signature.probes[:1] for name in probe.outputs]
    names = [signature.labels.get(each, each) for each in found]
    if evaluation.output is not None and names and evaluation.output not in names:
        wrong = f"the evaluation takes predictions from '{evaluation.output}'; the outputs are {', '.join(names)}"
        raise QuantizationError(wrong + suggestion(evaluation.output, names))
    if evaluation.labels is not None and signature.probes and found:
        name = next((each for each in found if evaluation.output in (each, signature.labels.get(each))), found[0])
        outputs = signature.probes[0].outputs[name]
        for each in evaluation.labels:
            numbers = whole_numbers(each)
            if numbers.ndim < outputs.ndim:
                classes(numbers, (*numbers.shape, outputs.shape[-1]))
    for batch in evaluation.inputs:
        if isinstance(batch, (Mapping, np.ndarray)):
            given = named_arrays(inputs, [batch], {})
            # States and random numbers need not be given; an unknown name is an error of all inputs.
            is_known = given.keys() <= {each.name for each in inputs}
            check_inputs([each for each in inputs if each.name in given] if is_known else inputs, given)
