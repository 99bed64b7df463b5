"""Sections of `report.html`: inputs and outputs as tables, and scores of float and quantized files by their sizes."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import SignatureRecord
from keras_transformer.export.reporting.html_page import breakable, color_of, details, format_label, format_title, table

# About as wide as a phone, so that text is not scaled down there.
_WIDTH, _HEIGHT = 400, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 300, 16, 210
_LEAST_RANGE = 0.1  # Least range of the scores, as a share of the largest: smaller differences look small.
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


def preprocessing_table(manifest: Manifest) -> str:
    """Returns a table of the steps in front of the files of each format, or "" where there are none.

    Args:
        manifest: a bundle's manifest.
    """
    rows = [
        [
            format_label(format),
            *map(html.escape, (", ".join(step.inputs), step.operation.layer, step.output, step.dtype)),
        ]
        for format, artifact in manifest.artifacts.items()
        for preprocessing in artifact.preprocessing.values()
        for step in preprocessing.steps
    ]
    if not rows:
        return ""
    return f"<h3>In front of the files</h3>{table(('', 'reads', 'step', 'makes', 'dtype'), rows)}"


def known_differences_table(manifest: Manifest) -> str:
    """Returns a table of what the files of each format compute otherwise than Keras, or "" where nothing is known.

    Args:
        manifest: a bundle's manifest.
    """
    artifacts = manifest.artifacts.items()
    rows = [[format_label(format), html.escape(text)] for format, each in artifacts for text in each.known_differences]
    return table(("", ""), rows) if rows else ""


def domain_table(manifest: Manifest) -> str:
    """Returns a table of the values and sizes on which float files were compared with the model, or "" without any.

    Args:
        manifest: a bundle's manifest.
    """
    rows: list[list[str]] = []
    for name, domain in manifest.domain.items():
        mono = f'<span class="mono">{html.escape(name)}</span>'
        for key, (low, high) in domain.ranges.items():
            values = ", ".join([f"{low:.4g} to {high:.4g}", *domain.not_finite.get(key, ())])
            rows.append([mono, breakable(key), html.escape(values)])
        rows += [[mono, breakable(axis), ", ".join(map(str, sizes))] for axis, sizes in domain.sizes.items()]
        rows += [[mono, "branches", html.escape(str(domain.coverage))]] if domain.coverage is not None else []
        rows += [[mono, "inputs", html.escape(each)] for each in domain.without_effect]
        rows += [[mono, "not shown", html.escape(each)] for each in domain.not_shown]
    return table(("signature", "input or axis", "compared for"), rows) if rows else ""


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


def size_plot(artifacts: Mapping[str, ArtifactRecord]) -> str:
    """What the task's score, or else the agreement, costs in bytes: float and quantized files.

    Args:
        artifacts: dict of format to its `ArtifactRecord`.

    Returns:
        SVG text, or "" where nothing was evaluated.
    """
    pairs = _pairs(artifacts)
    if not pairs:
        return ""
    most = max(large for _, large, *_ in pairs) * 1.08
    low, high = _range([score for *_, before, after in pairs for score in (before, after)])
    x = lambda size: _LEFT + (_RIGHT - _LEFT) * size / most  # noqa: E731
    y = lambda score: _BOTTOM - (_BOTTOM - _TOP) * (score - low) / (high - low)  # noqa: E731
    parts = [_line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis"), _line(_LEFT, _TOP, _LEFT, _BOTTOM, "axis")]
    for share in (0, 0.5, 1):
        parts.append(_text(x(most * share), _BOTTOM + 18, f"{most * share / 1e6:.2g} MB", "middle"))
        level = low + (high - low) * share
        parts.append(_line(_LEFT, y(level), _RIGHT, y(level), "grid"))
        parts.append(_text(_LEFT - 8, y(level) + 4, f"{level:.3g}", "end"))
    if low > 0:
        parts.append(_text(_LEFT, _HEIGHT - 4, f"The scale of scores begins at {low:.3g}, not at 0.", ""))
    for index, (name, large, small, before, after) in enumerate(pairs):
        title = format_title(name)
        parts.append(_line(x(large), y(before), x(small), y(after), "move"))
        parts.append(_dot(x(large), y(before), name, f"{title}, float: {before:.4g}"))
        parts.append(_dot(x(small), y(after), name, f"{title}, quantized: {after:.4g}", is_hollow=True))
        parts.append(_dot(_RIGHT + 16, _TOP + 4 + 20 * index, name, title))
        parts.append(_text(_RIGHT + 26, _TOP + 8 + 20 * index, title, ""))
    parts.append(_text(_RIGHT + 11, _TOP + 12 + 20 * len(pairs), "○ quantized", ""))
    return _svg(parts, "Score against size")


def _pairs(artifacts: Mapping[str, ArtifactRecord]) -> list[tuple[str, int, int, float, float]]:
    """Format, bytes and score of the float file and of the quantized one: name, two sizes, two scores."""
    pairs = []
    for name, record in artifacts.items():
        found = record.evaluation or {}
        has_score = found.get("score") is not None
        after = found.get("score") if has_score else found.get("agreement")
        if after is not None and record.float_size is not None:
            before = found["score_float"] if has_score else 1.0
            pairs.append((name, record.float_size, record.size, before, after))
    return pairs


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis of scores, which show differences of less than a tenth as small."""
    low, high = min(values), max(values)
    margin = max((high - low) * 0.25, (_LEAST_RANGE * max(map(abs, values)) - (high - low)) / 2, 1e-6)
    above = max(high + margin - 1.0, 0.0) if low >= 0 and high <= 1 else 0.0  # Shares end at 1.
    return low - margin - above, high + margin - above


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(str(text))}</text>'


def _dot(x: float, y: float, name: str, title: str, is_hollow: bool = False) -> str:
    color = color_of(name)
    paint = f'fill="var(--paper)" stroke="{color}"' if is_hollow else f'fill="{color}" stroke="{color}"'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" stroke-width="2" {paint}><title>{html.escape(title)}</title></circle>'
    )


def _svg(parts: Sequence[str], title: str) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title)}">{body}</svg>'
