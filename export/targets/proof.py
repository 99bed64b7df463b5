"""The proof of a bundle for a target: static rules, then the accelerator or its simulator, compared with the CPU."""

from __future__ import annotations

import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.target_result import Fallback, SignatureResult, TargetResult
from keras_transformer.export.errors import ParityError, TargetError
from keras_transformer.export.targets.target import Node, Target
from keras_transformer.utils.errors import one_line

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.manifest import Manifest

Locate = Callable[[str, str], str]
_SECONDS = 1800
_UNKNOWN = "refused by the accelerator"


def prove(target: Target, directory: pathlib.Path, manifest: Manifest, spec: ExportSpec) -> TargetResult:
    """Checks the files of a bundle by the rules of a target, and runs them where its library is installed.

    Args:
        target: `Target`.
        directory: path of the bundle, whose files were verified on the CPU.
        manifest: its manifest.
        spec: the `ExportSpec`, with the inputs of the probes.

    Raises:
        ParityError: an output on the accelerator differs by more than the target's tolerance from the CPU's.
        TargetError: a target that stands alone refuses a node or does not run the file, or one takes less than its least
            share; names the nodes and their layers.
    """
    files = {key: directory / path for key, path in manifest.artifact(target.format).signatures.items()}
    checked = {key: target.check(path, key) for key, path in files.items()}
    if target.stands_alone:
        _check_alone(target, [node for each in checked.values() for node in each], None, spec)
    counts = {key: target.nodes(path, key) for key, path in files.items()}
    missing = target.missing_library()
    found: dict[str, Any] = {"missing": missing} if missing else _simulated(target, directory, manifest, files, spec)
    reason = found.get("missing") or found.get("error")
    if target.stands_alone:
        _check_alone(target, [Node(*found["node"])] if "node" in found else [], reason, spec)
    if reason:
        signatures = [
            SignatureResult(key, counts[key], fallbacks=_fallbacks(each, spec.locate)) for key, each in checked.items()
        ]
        return TargetResult(target.name, tuple(signatures), None, reason)
    signatures = []
    for key, each in found["signatures"].items():
        refused = _refused(checked[key], each["refused"]) if each["taken"] < each["nodes"] else []
        fallbacks = _fallbacks([*refused, *(Node(*node) for node in each["left"])], spec.locate)
        difference, figures = found["differences"][key], each["figures"]
        signatures.append(SignatureResult(key, each["nodes"], each["taken"], difference, fallbacks, figures))
        _check_share(target, signatures[-1])
    return TargetResult(target.name, tuple(signatures), target.simulator, compiled=tuple(found["compiled"]))


def _check_alone(target: Target, nodes: list[Node], reason: str | None, spec: ExportSpec) -> None:
    """Refuses a file that has such nodes, or does not run for a reason."""
    named = "; ".join(map(str, _fallbacks(nodes, spec.locate)))
    if named or reason:
        raise TargetError(target.name, f"it does not run {named}" if named else f"it does not run the file: {reason}")


def _check_share(target: Target, result: SignatureResult) -> None:
    """Refuses a signature of which a target takes less than its least share."""
    if target.least_share is not None and (result.taken or 0) < target.least_share * result.nodes:
        named = "; ".join(map(str, result.fallbacks))
        taken = f"{result.taken} of {result.nodes} nodes"
        raise TargetError(target.name, f"it runs {taken}, less than least_share={target.least_share}: {named}")


def _fallbacks(nodes: Iterable[Node], locate: Locate) -> tuple[Fallback, ...]:
    """Nodes by operator and reason, with the layers that they came from."""
    grouped: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
    for node in nodes:
        layer = locate(node.op, node.name) if node.name else ""
        # The tensors of outputs are named after their signature, not after a layer.
        grouped[node.op, node.reason, node.remedy].append("" if "/call" in layer else layer)
    return tuple(
        Fallback(op, reason, remedy, len(layers), tuple(dict.fromkeys(filter(None, layers))))
        for (op, reason, remedy), layers in grouped.items()
    )


def _refused(checked: list[Node], reasons: Mapping[str, str]) -> list[Node]:
    """The nodes that the accelerator refuses: those of the static rules with its own reasons, and what no rule knows."""
    named = [each for each in checked if not reasons or each.op in reasons]
    known = [each._replace(reason=reasons.get(each.op, each.reason)) for each in named]
    others = set(reasons) - {each.op for each in checked}
    return known + [Node(op, "", reasons[op] or _UNKNOWN) for op in sorted(others)]


def _simulated(
    target: Target, directory: pathlib.Path, manifest: Manifest, files: dict[str, pathlib.Path], spec: ExportSpec
) -> dict[str, Any]:
    """What the worker found, with the largest difference of each signature from the CPU; compiled files are kept."""
    cases = {key: [probe.inputs for probe in spec.signatures[key].probes] for key in files}
    mode = spec.quantization.mode if spec.quantization is not None else None
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        job = {key: [str(path.resolve()), len(cases[key])] for key, path in files.items()}
        task = {"target": target.name, "options": target.options, "precision": mode, "signatures": job}
        text = json.dumps(task)
        (folder / "job.json").write_text(text, encoding="utf-8")
        inputs: dict[str, Any] = {
            f"{key}/{number}/{name}": array
            for key, each in cases.items()
            for number, arrays in enumerate(each)
            for name, array in arrays.items()
        }
        np.savez(folder / "inputs.npz", **inputs)
        found = _worked(folder)
        if "signatures" in found:
            with np.load(folder / "outputs.npz") as arrays:
                outputs = dict(arrays)
            limit = target.tolerance.get(mode, 1.0)
            limit = max(limit, spec.tolerance or 0.0)
            found["differences"] = {
                key: _difference(target, key, _expected(target, directory, manifest, key, spec), outputs, limit)
                for key in cases
            }
            names = [each.get("compiled") for each in found["signatures"].values()]
            found["compiled"] = [name for name in names if name]
            for name in found["compiled"]:
                shutil.move(folder / name, directory / name)
    return found


def _worked(folder: pathlib.Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "keras_transformer.export.targets.worker", str(folder / "job.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"the simulator did not end within {_SECONDS} s"}
    result = folder / "result.json"
    if not result.is_file():
        lines = done.stderr.strip().splitlines()
        return {"error": f"the simulator ended with status {done.returncode}: {one_line(lines[-1] if lines else '')}"}
    return json.loads(result.read_text(encoding="utf-8"))


def _expected(
    target: Target, directory: pathlib.Path, manifest: Manifest, signature: str, spec: ExportSpec
) -> list[dict[str, np.ndarray]]:
    """The outputs on the CPU: of the Keras model, or, of quantized files, of the same file in its own runtime."""
    probes = spec.signatures[signature].probes
    if spec.quantization is None:
        return [probe.outputs for probe in probes]
    from keras_transformer.export.loading.load import open_artifact

    model = open_artifact(directory, manifest, target.format, signature, 1)
    return [model(**probe.inputs) for probe in probes]


def _difference(
    target: Target, signature: str, cpu: list[dict[str, np.ndarray]], outputs: dict[str, np.ndarray], limit: float
) -> float:
    """The largest difference of the outputs of a signature, as a share of their scale."""
    largest = 0.0
    for number, each in enumerate(cpu):
        for name, expected in each.items():
            got = _output(outputs, f"{signature}/{number}/", name)
            if got.shape != expected.shape or not np.isfinite(got).all():
                detail = f"has shape {got.shape} instead of {expected.shape}, or is not finite, on the accelerator"
                raise ParityError(target.name, name, f"{signature}, {number + 1}", np.nan, 1.0, limit, detail)
            scale = max(float(np.abs(expected).max(initial=0)), 1e-6)
            gap = float(np.abs(got.astype("float64") - expected.astype("float64")).max(initial=0))
            if gap > limit * scale:
                raise ParityError(target.name, name, f"{signature}, {number + 1}", gap, scale, limit)
            largest = max(largest, gap / scale)
    return largest


def _output(outputs: dict[str, np.ndarray], prefix: str, name: str) -> np.ndarray:
    """An output by its name in the manifest, which some files extend."""
    found = outputs.get(f"{prefix}{name}")
    return outputs[f"{prefix}{name}_output"] if found is None else found
