"""What files are compared with: that it computes what the model does which was handed over, and that it varies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.parity import Parity, TwinRecord, worst_of
from keras_transformer.export.verification.comparison import (
    Difference,
    Limit,
    compare,
    parity_error,
    sentinels,
    varies,
)

# An output that varies by less than this share of its size is constant: by two units in the last place.
_CONSTANT = 2.0**-22
# The largest movement, as a share of the size, below which an output that varies less is constant.
_ROUNDING = 1e-3


def check_preprocessing(spec: ExportSpec) -> None:
    """Compares the whole model with the steps in front of its files and the part behind them, both in Keras.

    Raises:
        ParityError: an output differs.
    """
    for name, each in spec.preprocessed.items():
        for probe, part in zip(each.signature.probes, spec.signatures[name].probes, strict=True):
            for output, expected in probe.outputs.items():
                found = compare(part.outputs[output], expected)
                if not found.is_accepted:
                    raise parity_error("preprocessing", output, probe.label, found)


def check_twin(spec: ExportSpec) -> TwinRecord | None:
    """Compares the model that is exported with the one that was handed over, both in Keras.

    They may differ by what the rounding of the exported model explains, or that of the precision of the other one.

    Args:
        spec: `ExportSpec`, with the rounding of its probes where that is measured.

    Returns:
        `TwinRecord`, or None where the model is exported itself.

    Raises:
        ParityError: an output differs; names how the one was made of the other.
    """
    if spec.origin is None:
        return None
    limit = Limit(spec.tolerance, is_quantized=spec.origin.unit > 1, unit=spec.origin.unit)
    found: list[Parity] = []
    count = 0
    for name, probes in spec.probes().items():
        scales = scales_of(probes)
        for probe in (each for each in probes if each.origin):
            count += 1
            for output, expected in probe.origin.items():
                got, expected = _comparable(probe.outputs[output], expected, limit)
                each = compared_with(probe, output, got, expected, limit, scales[output])
                if not each.is_accepted:
                    raise parity_error(", ".join(spec.origin.steps), output, probe.label, each)
                found.append(Parity(name, output, each.difference, each.scale, each.ratio, each.share))
    return TwinRecord(spec.origin.steps, tuple(worst_of(found)), count) if found else None


def _comparable(got: np.ndarray, expected: np.ndarray, limit: Limit) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays; where one is of 16 bits, without the sentinels, which it rounds, and what is too large for it."""
    if limit.unit == 1 or expected.dtype.kind != "f":
        return got, expected
    regular = ~(sentinels(got) | sentinels(expected))
    return np.where(regular, got, 0), np.where(regular, expected, 0)


def scales_of(probes: Sequence[Probe]) -> dict[str, float | None]:
    """How far each output varies over all probes; None where that is not known, or no more than rounding."""
    found: dict[str, float | None] = {}
    for name in probes[0].outputs:
        found[name] = None if is_constant(name, probes) else varies([each.outputs[name] for each in probes])
    return found


def is_constant(name: str, probes: Sequence[Probe]) -> bool:
    """Whether an output varies over all probes by no more than rounding explains: it does not show what a file computes.

    Args:
        name: of the output.
        probes: those of a signature, with their outputs.
    """
    arrays = [each.outputs[name] for each in probes]
    variation = varies(arrays)
    if variation is None:
        return False
    regular = [np.where(sentinels(each), 0.0, each.astype("float64")) for each in arrays]
    size = max(float(np.abs(each).max(initial=0.0)) for each in regular)
    roundings = (each.rounding.get(name) for each in probes)
    moved = max((float(each.max(initial=0.0)) for each in roundings if each is not None), default=0.0)
    # Where rounding moves more, as of a choice between equals, the output varies with the choice.
    return variation <= max(_CONSTANT * size, moved if moved <= _ROUNDING * size else 0.0)


def compared_with(
    probe: Probe, name: str, got: np.ndarray, expected: np.ndarray, limit: Limit, scale: float | None
) -> Difference:
    """Compares an output by the rounding of a probe, which is measured where an estimate of it does not suffice."""
    found = compare(got, expected, probe.rounding.get(name), limit, scale)
    if not found.is_accepted and probe.measure is not None:
        probe.rounding, probe.measure = probe.measure(), None
        found = compare(got, expected, probe.rounding.get(name), limit, scale)
    return found
