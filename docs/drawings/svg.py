"""A few shapes of SVG for the drawings of the documentation: a dark panel, legible on light and dark pages."""

from html import escape
from pathlib import Path

PANEL, BOX, LINE = "#171a2e", "#262b49", "#8f9bd8"
TEXT, FAINT, GOOD, BAD = "#f4f5fb", "#b9c0e4", "#6fdc9c", "#ff9a8d"
FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


class Drawing:
    """A drawing of boxes, arrows and texts; coordinates are in pixels.

    Args:
        width: int.
        height: int.
        title: str, read to those who do not see the drawing.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="{FONT}" role="img">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="14" fill="{PANEL}"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, color: str = LINE) -> None:
        """Adds a box with round corners and a frame of a color."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" fill="{BOX}" stroke="{color}"'
            ' stroke-width="1.5"/>'
        )

    def text(self, x: float, y: float, text: str, size: int = 18, color: str = TEXT, **style: str) -> None:
        """Adds a line of text around `x`; `style` are attributes, such as `anchor="start"` or `weight="bold"`."""
        anchor, weight = style.get("anchor", "middle"), style.get("weight", "normal")
        family = f' font-family="{style["family"]}"' if "family" in style else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}"'
            f"{family}>{escape(text)}</text>"
        )

    def arrow(self, *points: tuple[float, float], head: bool = True, color: str = LINE) -> None:
        """Adds a line through points, with a head at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        marker = ' marker-end="url(#head)"' if head else ""
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{marker}/>')

    def check(self, x: float, y: float) -> None:
        """Adds a check mark in a circle around a point."""
        self._parts.append(
            f'<circle cx="{x}" cy="{y}" r="12" fill="{GOOD}"/><path d="M{x - 6} {y}l4 5 8-9" fill="none"'
            f' stroke="{PANEL}" stroke-width="3"/>'
        )

    def save(self, path: Path) -> None:
        """Writes the file."""
        path.write_text("\n".join([*self._parts, "</svg>", ""]))
