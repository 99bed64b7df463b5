"""What the verification of a bundle shows, in a sentence."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import CEILING
from keras_transformer.export.formats import FORMATS
from keras_transformer.export.reporting.html_page import format_title


class Verdict(NamedTuple):
    """What is known of the files of a bundle.

    Args:
        headline: such as "Proven equal in 3 runtimes".
        explanation: what was compared, and the largest difference.
        is_proven: whether every file was run and compared.
    """

    headline: str
    explanation: str
    is_proven: bool


def verdict(manifest: Manifest) -> Verdict:
    """Returns what the figures of a manifest show.

    Args:
        manifest: a bundle's manifest.

    Example:

    >>> from keras_transformer.export.data.parity import Parity
    >>> parity = Parity("serve", "logits", difference=1e-7, scale=1.0, ratio=1e-7, share=0.1)
    >>> artifact = ArtifactRecord({"serve": "model.onnx"}, size=9, parity=(parity,))
    >>> verdict(Manifest({}, {"onnx": artifact}, tolerance=1e-5)).headline
    'Proven equal in ONNX Runtime'
    """
    artifacts = {name: manifest.artifacts[name] for name in FORMATS if name in manifest.artifacts}
    compared = {name: record for name, record in artifacts.items() if record.parity}
    if not compared:
        return Verdict("Not run", _weights_only(artifacts), False)
    first = FORMATS[next(iter(compared))]
    where = f"{len(compared)} runtimes" if len(compared) > 1 else first.runtime_title or first.library.distribution
    modes = sorted({record.quantization for record in compared.values() if record.quantization is not None})
    others = [format_title(name) for name in artifacts if name not in compared]
    rest = f" {_joined(others)} was not run." if others else ""
    if modes:
        counts = [record.weights.rounded for record in compared.values() if record.weights is not None]
        if counts and not any(counts):
            return Verdict(f"Not quantized by {_joined(modes)}", "No weight of the files is quantized." + rest, False)
        return Verdict(
            f"Quantized to {_joined(modes)}, within limits in {where}", _quantized(compared) + rest, not others
        )
    return Verdict(f"Proven equal in {where}", _equal(compared, manifest.tolerance) + rest, not others)


def _equal(compared: Mapping[str, ArtifactRecord], tolerance: float) -> str:
    titles = _joined([format_title(name) for name in compared])
    ratio = max(record.ratio for record in compared.values())
    limit = "rounding explains" if tolerance == CEILING else f"{tolerance:.0e} of its scale"
    verb = "computes" if len(compared) == 1 else "compute"
    text = f"{titles} {verb} what the Keras model computes: no output differs by more than {limit}. "
    text += f"The largest difference is {ratio:.1e} of an output's scale"
    share = max(each.share for record in compared.values() for each in record.parity or ())
    return text + (f", {share:.0%} of what is allowed there." if share else ".")


def _quantized(compared: Mapping[str, ArtifactRecord]) -> str:
    ratio = max(record.ratio for record in compared.values())
    text = f"Quantization moves the outputs by at most {ratio:.1e} of their scale on the probes."
    rounded = max((record.weights.rounded or 0) if record.weights else 0 for record in compared.values())
    text += f" All {rounded:,} quantized weights are within half a step of the float ones." if rounded else ""
    kept = [found["agreement"] for each in compared.values() if (found := each.evaluation)]
    kept = [each for each in kept if each is not None]
    return text + (f" {min(kept):.2%} of the predictions on the evaluation data are unchanged." if kept else "")


def _weights_only(artifacts: Mapping[str, ArtifactRecord]) -> str:
    equal = max(record.weights.equal if record.weights else 0 for record in artifacts.values())
    known = f" {equal:,} weights in them equal the Keras model's, bit for bit." if equal else ""
    return f"The files were not run when they were written.{known}"


def _joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]
