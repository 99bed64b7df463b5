"""What the verification of a bundle shows, in a sentence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_transformer.export.formats import FORMATS
from keras_transformer.export.reporting.html_page import format_title
from keras_transformer.export.verification.comparison import CEILING


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


def verdict(manifest: dict[str, Any]) -> Verdict:
    """Returns what the figures of a manifest show.

    Args:
        manifest: a bundle's manifest.

    Example:

    >>> parity = [{"signature": "serve", "output": "logits", "difference": 1e-7, "scale": 1.0, "ratio": 1e-7, "share": 0.1}]
    >>> verdict({"tolerance": 1e-5, "artifacts": {"onnx": {"bytes": 9, "parity": parity}}}).headline
    'Proven equal in ONNX Runtime'
    """
    artifacts = {name: manifest["artifacts"][name] for name in FORMATS if name in manifest["artifacts"]}
    compared = {name: record for name, record in artifacts.items() if record.get("parity")}
    if not compared:
        return Verdict("Not run", _weights_only(artifacts), False)
    first = FORMATS[next(iter(compared))]
    where = f"{len(compared)} runtimes" if len(compared) > 1 else first.runtime_title or first.library.distribution
    modes = sorted({record["quantization"] for record in compared.values() if "quantization" in record})
    others = [format_title(name) for name in artifacts if name not in compared]
    rest = f" {_joined(others)} was not run." if others else ""
    if modes:
        return Verdict(
            f"Quantized to {_joined(modes)}, within limits in {where}", _quantized(compared) + rest, not others
        )
    return Verdict(f"Proven equal in {where}", _equal(compared, manifest["tolerance"]) + rest, not others)


def _equal(compared: dict[str, Any], tolerance: float) -> str:
    titles = _joined([format_title(name) for name in compared])
    outputs = [each for record in compared.values() for each in record["parity"]]
    ratio = max(each["ratio"] for each in outputs)
    limit = "rounding explains" if tolerance == CEILING else f"{tolerance:.0e} of its scale"
    verb = "computes" if len(compared) == 1 else "compute"
    text = f"{titles} {verb} what the Keras model computes: no output differs by more than {limit}. "
    text += f"The largest difference is {ratio:.1e} of an output's scale"
    share = max(each.get("share", 0.0) for each in outputs)
    return text + (f", {share:.0%} of what is allowed there." if share else ".")


def _quantized(compared: dict[str, Any]) -> str:
    ratio = max(each["ratio"] for record in compared.values() for each in record["parity"])
    text = f"Quantization moves the outputs by at most {ratio:.1e} of their scale on the probes."
    rounded = max((record.get("weights") or {}).get("rounded", 0) for record in compared.values())
    text += f" All {rounded:,} quantized weights are within half a step of the float ones." if rounded else ""
    kept = [found["agreement"] for each in compared.values() if (found := each.get("evaluation"))]
    kept = [each for each in kept if each is not None]
    return text + (f" {min(kept):.2%} of the predictions on the evaluation data are unchanged." if kept else "")


def _weights_only(artifacts: dict[str, Any]) -> str:
    equal = max((record.get("weights") or {}).get("equal", 0) for record in artifacts.values())
    known = f" {equal:,} weights in them equal the Keras model's, bit for bit." if equal else ""
    return f"The files were not run when they were written.{known}"


def _joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]
