"""The SVG plots of `report.html`."""

import html
import math
from collections.abc import Sequence
from typing import Any

from keras_transformer.export.formats import FORMATS

_WIDTH, _ROW = 680, 26


def color_of(format: str) -> str:
    """The CSS color of a format: its own of the page's palette, by the order of `FORMATS`."""
    return f"var(--{'abcdef'[list(FORMATS).index(format)]})"


def parity_plot(artifacts: dict[str, Any]) -> str:
    """How far each output is from Keras, on a scale of powers of ten, with the tolerance as a line.

    Args:
        artifacts: dict of format to its record in the manifest, with "parity" and "tolerance".

    Returns:
        SVG text.
    """
    rows = [(name, each) for name, record in artifacts.items() for each in _worst(record["parity"])]
    tolerances = [record["tolerance"] for record in artifacts.values()]
    low, high = -9, max(0, math.ceil(math.log10(max(tolerances)))) if tolerances else 0
    left, right, height = 250, _WIDTH - 16, _ROW * len(rows) + 34
    position = lambda ratio: left + (right - left) * (_log(ratio, low) - low) / (high - low)  # noqa: E731
    parts = [
        _line(position(10.0**power), 8, position(10.0**power), height - 24, "grid")
        + _text(position(10.0**power), height - 8, f"1e{power}" if power else "1", "tick middle")
        for power in range(low, high + 1, 3)
    ]
    for tolerance in sorted(set(tolerances)):
        parts.append(_line(position(tolerance), 8, position(tolerance), height - 24, "limit"))
    for index, (name, each) in enumerate(rows):
        y = 8 + _ROW * (index + 0.5)
        parts.append(_text(left - 12, y + 4, f"{each['signature']} · {each['output']}", "label end"))
        parts.append(_line(left, y, position(each["ratio"]), y, "stem"))
        title = f"{name}: {each['ratio']:.1e} of the scale"
        parts.append(_dot(position(each["ratio"]), y, name, title))
    return _svg(height, parts, "Largest difference from Keras, as a share of each output's scale")


def size_plot(artifacts: dict[str, Any]) -> str:
    """What the task's score, or else the agreement, costs in bytes: float and quantized files.

    Args:
        artifacts: dict of format to its record in the manifest, each with "evaluation" and "float_bytes".

    Returns:
        SVG text, or "" where nothing was evaluated.
    """
    points = []
    for name, record in artifacts.items():
        found = record.get("evaluation")
        if not found:
            continue
        has_score = found["score"] is not None
        before, after = (found["score_float"], found["score"]) if has_score else (1.0, found["agreement"])
        points.append((name, record["float_bytes"], before, "float"))
        points.append((name, record["bytes"], after, record["quantization"]))
    if not points:
        return ""
    height, left, right, top, bottom = 260, 80, _WIDTH - 150, 16, 216
    most = max(size for _, size, _, _ in points) * 1.08
    low, high = _margin([score for _, _, score, _ in points])
    x = lambda size: left + (right - left) * size / most  # noqa: E731
    y = lambda score: bottom - (bottom - top) * (score - low) / (high - low)  # noqa: E731
    parts = [_line(left, bottom, right, bottom, "axis"), _line(left, top, left, bottom, "axis")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(_text(x(most * share), bottom + 18, f"{most * share / 1e6:.1f} MB", "tick middle"))
        level = low + (high - low) * share
        parts.append(_line(left, y(level), right, y(level), "grid"))
        parts.append(_text(left - 8, y(level) + 4, f"{level:.4g}", "tick end"))
    for index in range(0, len(points), 2):
        (name, size, score, _), (_, small, after, mode) = points[index : index + 2]
        parts.append(_line(x(size), y(score), x(small), y(after), f"move {name}"))
        parts.append(_dot(x(size), y(score), name, f"{name}, float: {score:.4g}"))
        parts.append(_dot(x(small), y(after), name, f"{name}, {mode}: {after:.4g}", is_hollow=True))
        parts.append(_text(right + 12, top + 14 + 20 * (index // 2), f"● {name}", f"legend {name}"))
    parts.append(_text(right + 12, top + 18 + 10 * len(points), "○ quantized", "legend"))
    return _svg(height, parts, "Score against size")


def bar(share: float, name: str) -> str:
    """Returns a bar of a share of the width, in the color of a format."""
    color = color_of(name)
    return f'<span class="bar"><span style="width:{100 * share:.1f}%;background:{color}"></span></span>'


def _worst(parity, most=12):
    """The outputs with the largest differences, in the order of the signatures."""
    kept = sorted(parity, key=lambda each: -each["ratio"])[:most]
    return [each for each in parity if each in kept]


def _log(ratio: float, low: float) -> float:
    return max(math.log10(ratio), low) if ratio > 0 else low


def _margin(values):
    low, high = min(values), max(values)
    margin = max((high - low) * 0.25, abs(high) * 0.005, 1e-6)
    return low - margin, high + margin


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


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(title)}">{body}</svg>'
