"""The data of an evaluation and of calibrations, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.calibration_data import calibration_batches
from keras_transformer.export.quantization.options import Quantization
from keras_transformer.export.runtime.inputs import check_inputs, named_arrays
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.utils.choice import suggestion


def check_data(spec: ExportSpec, precisions: Iterable[Quantization | None]) -> None:
    """Checks that data fit a signature, where they can be read more than once.

    A language model has several signatures and takes texts: its data are checked where they are read.

    Args:
        spec: `ExportSpec`, with its evaluation.
        precisions: a `Quantization` of each bundle, None for float files.

    Raises:
        InputError: a batch of the evaluation does not fit the inputs.
        QuantizationError: calibration data do not, or the evaluation names an output that does not exist.
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
            calibration_batches(data, signature.inputs)


def _check_evaluation(evaluation: Evaluation, signature: Signature) -> None:
    inputs, found = signature.inputs, [name for probe in signature.probes[:1] for name in probe.outputs]
    names = [signature.labels.get(each, each) for each in found]
    if evaluation.output is not None and names and evaluation.output not in names:
        wrong = f"the evaluation takes predictions from '{evaluation.output}'; the outputs are {', '.join(names)}"
        raise QuantizationError(wrong + suggestion(evaluation.output, names))
    for batch in evaluation.inputs:
        if isinstance(batch, (Mapping, np.ndarray)):
            given = named_arrays(inputs, [batch], {})
            # States and random numbers need not be given; an unknown name is an error of all inputs.
            is_known = given.keys() <= {each.name for each in inputs}
            check_inputs([each for each in inputs if each.name in given] if is_known else inputs, given)
