"""The stage of the outputs: an artifact runs on the probes in its own runtime, and must compute what the model computed."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import Parity, worst_of
from keras_transformer.export.errors import ParityError
from keras_transformer.export.formats import get_format
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.export.verification.comparison import Limit, parity_error
from keras_transformer.export.verification.references import compared_with, is_constant, scales_of
from keras_transformer.export.verification.running import milliseconds, opened, results_on
from keras_transformer.utils.freed_memory import give_back

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

_CALLS_AT_ONCE = 2
_SIGN = (
    "the vectors of {place} have a sign that each library chooses: return what does not depend on it, such as their"
    " products"
)
_ORDER = (
    "the elements of {place} are in an order that each library chooses: pass sorted=True, or return what does not depend"
    " on it"
)
# Operations of which several results are right: the attribute that tells it, its value then, and what to do.
_CHOICES = {
    "SelfAdjointEigV2": ("compute_v", True, _SIGN),
    "Svd": ("compute_uv", True, _SIGN),
    "TopKV2": ("sorted", False, _ORDER),
}


def verify_format(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    tolerance: float | None,
    manifest: Manifest,
    times: dict[str, float] | None = None,
) -> list[Parity]:
    """Runs one artifact on probes, while it is being exported.

    Args:
        directory: path of the bundle, complete or still being written.
        format: name of the format.
        probes: dict of signature name to a list of `Probe` with their outputs.
        tolerance: largest difference allowed, as a share of each output's scale; None for what the rounding of the model
            explains.
        manifest: the bundle's manifest.
        times: dict that receives the milliseconds of a call of each signature, or None.

    Returns:
        A list of `Parity`.

    Raises:
        ParityError: an output differs; the message has its name and the difference.
    """
    return compare_outputs(directory, format, probes, Limit(tolerance), manifest, times)


def with_cause(error: ParityError, graphs: Iterable[TracedGraph], locate: Callable[[str, str], str]) -> ParityError:
    """The error of an output, with the operation that has several right results, if the model has one.

    Args:
        error: `ParityError`.
        graphs: those of the signatures.
        locate: the layer that an operation came from, of the name of the operation and that of the node.
    """
    from keras_transformer.export.graph.part import every_node

    nodes = (node for graph in graphs for node in every_node(graph.graph_def))
    found = next(filter(_is_chosen, nodes), None)
    if found is None or np.isnan(error.difference):
        return error
    hint = "; " + _CHOICES[found.op][-1].format(place=f"{found.op} of layer '{locate(found.op, found.name)}'")
    figures = error.difference, error.scale, error.tolerance
    return ParityError(error.format, error.output, error.probe, *figures, hint=hint)


def _is_chosen(node: NodeDef) -> bool:
    """Whether a library chooses between several right results of an operation."""
    attribute, value, _ = _CHOICES.get(node.op, ("", None, ""))
    return bool(attribute) and node.attr[attribute].b == value


def compare_outputs(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    limit: Limit,
    manifest: Manifest,
    times: dict[str, float] | None = None,
) -> list[Parity]:
    """Runs one artifact on probes, and holds each output to a `Limit`; see `verify_format`."""

    def compared(signature: str, model: RuntimeModel) -> list[Parity]:
        own = probes[signature]
        scales = scales_of(own)
        with full_precision():
            return [each for probe in own for each in parities(model, format, signature, probe, limit, scales)]

    def add_time(signature: str, model: RuntimeModel) -> None:
        if times is not None:
            times[signature] = milliseconds(model, probes[signature][0].inputs)

    found: list[Parity] = []
    if get_format(format).shares_loaded:
        # The file is loaded once. The first call of each signature optimizes its graph on one core.
        models = {signature: opened(directory, manifest, format, signature) for signature in probes}
        with concurrent.futures.ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            found += [each for part in pool.map(compared, models, models.values()) for each in part]
        for signature, model in models.items():
            add_time(signature, model)
        return _told(worst_of(found), probes)
    for signature in probes:
        model = opened(directory, manifest, format, signature)
        found += compared(signature, model)
        add_time(signature, model)
        del model  # The next runtime would hold the weights a second time.
        give_back()
    return _told(worst_of(found), probes)


def parities(
    model: RuntimeModel,
    format: str,
    signature: str,
    probe: Probe,
    limit: Limit,
    scales: Mapping[str, float | None] | None = None,
) -> Iterator[Parity]:
    """The `Parity` of each output of a signature on one probe.

    Args:
        model: `RuntimeModel` of the signature.
        format: name of the format, for errors.
        signature: its name.
        probe: `Probe` with the outputs of the Keras model.
        limit: `Limit`.
        scales: how far each output varies over all probes, where that is known.

    Raises:
        ParityError: an output is missing, has another shape or dtype, or differs by more than the limit.
    """
    results = results_on(model, format, probe)
    for name, expected in probe.outputs.items():
        result = results[name]
        if _kind(result) != _kind(expected) or result.shape != expected.shape:
            detail = f"is {result.dtype} {result.shape}, Keras returns {expected.dtype} {expected.shape}"
            raise ParityError(format, name, probe.label, np.nan, 1.0, 0.0, detail)
        found = compared_with(probe, name, result, expected, limit, (scales or {}).get(name))
        if not found.is_accepted:
            raise parity_error(format, name, probe.label, found)
        yield Parity(signature, name, found.difference, found.scale, found.ratio, found.share)


def _told(found: Iterable[Parity], probes: Mapping[str, Sequence[Probe]]) -> list[Parity]:
    """The same, with the outputs named that show nothing."""
    return [dataclasses.replace(each, is_constant=is_constant(each.output, probes[each.signature])) for each in found]


def _kind(array: np.ndarray) -> str | np.dtype:
    return "text" if array.dtype.kind == "U" else array.dtype
