"""Inputs and outputs of the signatures of a bundle, as tables of its `report.html`."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import SignatureRecord
from keras_transformer.export.reporting.html_page import breakable, details, table

# A copy of another signature for fixed shapes, `serve_1x128`.
_FIXED = re.compile(r"(.+?)_\d+(?:x\d+)*")


def signature_tables(manifest: Manifest) -> str:
    """Returns a table of inputs and outputs for each signature; copies for fixed shapes and caches are folded.

    Args:
        manifest: a bundle's manifest.
    """
    signatures, described = manifest.signatures, manifest.metadata.get("inputs", {})
    generation = manifest.generation or {}
    states = {*generation.get("cache", []), *generation.get("memory", [])}
    copies = {name for name in signatures if (match := _FIXED.fullmatch(name)) and match[1] in signatures}
    shown = {name: _signature(name, record, states, described) for name, record in signatures.items()}
    folded = "".join(each for name, each in shown.items() if name in copies)
    whole = "".join(each for name, each in shown.items() if name not in copies)
    return f'<div class="io">{whole}{_copies(copies, folded)}</div>'


def _copies(copies: set[str], folded: str) -> str:
    return details(f"{len(copies)} copies for fixed shapes", f"<div>{folded}</div>") if copies else ""


def _signature(name: str, record: SignatureRecord, states: set[str], described: Mapping[str, Any]) -> str:
    rows: list[list[str]] = []
    folded: list[list[str]] = []
    for side, specs in record._asdict().items():
        for each in specs:
            row = [side[:-1], breakable(each.name) + _description(described.get(each.name, {})), *_shape(each)]
            (folded if each.name in states else rows).append(row)
    head = ("", "name", "dtype", "shape")
    state = details(f"{len(folded)} inputs and outputs of the state", table(head, folded)) if folded else ""
    return f'<h3 class="mono">{html.escape(name)}</h3>{table(head, rows)}{state}'


def _shape(spec: ArraySpec) -> Sequence[str]:
    dtype, _, shape = spec.describe().partition(" ")
    return [html.escape(dtype), f'<span class="mono">{html.escape(shape)}</span>']


def _description(record: Mapping[str, Any]) -> str:
    """What the metadata says of an input: description, range, and the normalization that the caller makes."""
    parts = [record["description"]] if record.get("description") else []
    parts += [f"{record['range'][0]:g} to {record['range'][1]:g}"] if "range" in record else []
    parts += [f"{field} {record[field]}" for field in ("mean", "std") if field in record]
    return f"<br><small>{html.escape('; '.join(parts))}</small>" if parts else ""
