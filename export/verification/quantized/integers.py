"""What became integers in the quantized files of a format."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

from keras_transformer.export.bundle.writing import bytes_in
from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.integer_share import IntegerShare
from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.formats import get_format
from keras_transformer.export.quantization.calibrated import FullInt8, Int8Static, batches_of
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.verification.quantized.weights import QuantizedWeightRecord

# Bytes of a bundle whose products are counted, for which ONNX files run once more.
_LARGEST = 2**28


def integer_share(
    name: str,
    spec: ExportSpec,
    folder: pathlib.Path,
    manifest: Manifest,
    probes: Mapping[str, Sequence[Probe]],
    weights: QuantizedWeightRecord | None,
) -> IntegerShare | None:
    """What became integers in the quantized files of a format.

    Args:
        name: name of the format.
        spec: the `ExportSpec`, with its `quantization`.
        folder: path of the bundle.
        manifest: its manifest.
        probes: dict of signature name to its probes.
        weights: result of `check_quantized_weights`.

    Returns:
        `IntegerShare` of the file of the first signature; None for a format whose quantized files are not read.

    Raises:
        QuantizationError: nothing was quantized.
    """
    if weights is None:
        return None
    if weights["rounded"] == 0:
        raise QuantizationError(
            f"{name}, {spec.quantization.mode}: no weight was quantized. Those of keep_float, and those with fewer than "
            f"{SMALL:,} numbers, stay float: the largest of them has {weights['largest_float']:,}",
            Remedy.NOTHING,
        )
    examples = None
    if isinstance(spec.quantization, (FullInt8, Int8Static)) and spec.generation is None:
        examples = sum(len(next(iter(batch.values()))) for batch in batches_of(spec.quantization))
    record = manifest.artifact(name)
    key, path = next(iter(record.signatures.items()))
    if spec.quantization.mode == "fp16" or key not in probes or record.preprocessing or bytes_in(folder) > _LARGEST:
        return IntegerShare.of(None, weights["share"], examples)
    arrays = probes[key][0].inputs
    own = {record.names[key].inputs[each]: array for each, array in arrays.items()} if key in record.names else arrays
    found = get_format(name).products(folder / path, spec.locate, own)
    if found is not None and not isinstance(spec.quantization, FullInt8):
        found = (each for each in found if each.multiplications)
    return IntegerShare.of(found, weights["share"], examples)
