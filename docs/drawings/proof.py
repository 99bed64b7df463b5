"""Draws docs/proof.svg, what is compared before a bundle appears: `python docs/drawings/proof.py`."""

from pathlib import Path

from svg import BAD, FAINT, GOOD, LINE, Drawing

FILE = Path(__file__).parents[1] / "proof.svg"
TITLE = (
    "The model is compared with its twin, the weights of each file with those of the twin, and the outputs of each file, in"
    " its own runtime, with those of the model on all probes. What may differ is six times what rounding moves."
)
WIDTH, HEIGHT, TOP, BOTTOM = 204, 104, 62, 262
COLUMNS = (16, 278, 540)
# Title and lines of the boxes of both rows; the color of their frames.
ABOVE = (
    ("Your model", ("as it was handed over",), LINE),
    ("Twin", ("float32, adapters merged,", "traced to one graph"), LINE),
    ("Files", ("SavedModel, TFLite, ONNX", "in their own runtimes"), GOOD),
)
BELOW = (
    ("Probes", ("your data, then random:", "batches, lengths, scales"), LINE),
    ("Rounding", ("each operation rounds", "otherwise: what moves?"), LINE),
    ("Verdict", ("difference of each row", "at most 6 × that"), GOOD),
)


def main() -> None:
    drawing = Drawing(760, 436, TITLE)
    drawing.text(380, 36, "What is compared before a bundle appears", 19, weight="bold")
    for y, row in ((TOP, ABOVE), (BOTTOM, BELOW)):
        for x, (title, lines, color) in zip(COLUMNS, row, strict=True):
            _box(drawing, x, y, title, lines, color)
    for start, word in ((COLUMNS[0], "outputs"), (COLUMNS[1], "weights")):
        left = start + WIDTH
        drawing.text(left + 29, TOP + 42, word, 13, GOOD)
        drawing.arrow((left + 4, TOP + 56), (left + 54, TOP + 56))
        drawing.arrow((left + 4, BOTTOM + 56), (left + 54, BOTTOM + 56))
    middle = COLUMNS[2] + WIDTH / 2
    drawing.text(middle - 12, 220, "outputs on all probes", 15, GOOD, anchor="end")
    drawing.arrow((middle, TOP + HEIGHT + 4), (middle, BOTTOM - 6))
    drawing.text(380, 394, "Within it: the bundle appears, with the figures.", 17, GOOD)
    drawing.text(380, 418, "Beyond it: ParityError or WeightError, and no file.", 17, BAD)
    drawing.save(FILE)


def _box(drawing: Drawing, x: float, y: float, title: str, lines: tuple[str, ...], color: str) -> None:
    """A box with a title and lines of smaller words."""
    drawing.box(x, y, WIDTH, HEIGHT, color)
    drawing.text(x + WIDTH / 2, y + 34, title, 19)
    for index, line in enumerate(lines):
        drawing.text(x + WIDTH / 2, y + 62 + 22 * index, line, 15, FAINT)


if __name__ == "__main__":
    main()
