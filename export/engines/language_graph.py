"""The export spec of the graphs of a language model that engines load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.spec.probes import fill_references

if TYPE_CHECKING:
    import keras


def graph_spec(model: keras.Model, signatures: Mapping[str, Signature], tolerance: float | None) -> ExportSpec:
    """Export spec of the signatures of a language model, with the outputs of their probes.

    Args:
        model: `LanguageModel`, float32.
        signatures: dict of name to `Signature`, whose probes have inputs; their outputs are filled in.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.
    """
    for signature in signatures.values():
        fill_references(signature)
    return ExportSpec(
        dict(signatures),
        tolerance,
        locator(model, has_operations=False),
        tuple(model.variables),
        layers=tuple(layers_in_order(model)),
    )
