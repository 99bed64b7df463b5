"""Draws docs/pipeline.svg, the path from a model to verified files: `python docs/drawings/pipeline.py`."""

from pathlib import Path

from svg import BAD, FAINT, GOOD, Drawing

FORMATS = {"SavedModel": "TensorFlow", "TFLite": "LiteRT", "ONNX": "ONNX Runtime"}
TARGETS = ("servers", "phones, C++", "web, Node, apps")
TITLE = (
    "A Keras model or a checkpoint goes through export, which writes SavedModel, TFLite and ONNX, runs each in its own"
    " runtime and compares it with Keras."
)


def main() -> None:
    drawing = Drawing(760, 372, TITLE)
    for x, title in ((100, "1. Train or load"), (390, "2. Export and verify"), (660, "3. Run")):
        drawing.text(x, 38, title, 19, weight="bold")
    _sources(drawing)
    for row, (name, runtime) in enumerate(FORMATS.items()):
        _file(drawing, 62 + 84 * row, name, runtime, TARGETS[row])
    drawing.text(390, 336, "Outputs equal to Keras up to rounding: files.", 17, GOOD)
    drawing.text(390, 359, "Otherwise: ParityError, and no file.", 17, BAD)
    drawing.save(Path(__file__).parents[1] / "pipeline.svg")


def _sources(drawing: Drawing) -> None:
    """What goes in: a model that was trained, or a checkpoint."""
    for y, lines in ((62, ("Keras model", "model.fit(x, y)")), (188, ("Checkpoint", "Hugging Face, GGUF"))):
        drawing.box(16, y, 168, 110)
        drawing.text(100, y + 48, lines[0], 19)
        drawing.text(100, y + 78, lines[1], 16, FAINT)
        drawing.arrow((184, y + 55), (206, y + 55), (206, 180), head=False)
    drawing.arrow((206, 180), (238, 180))


def _file(drawing: Drawing, y: float, name: str, runtime: str, target: str) -> None:
    """A file, the runtime in which it is verified, and where it goes."""
    drawing.box(246, y, 292, 68, GOOD)
    drawing.text(264, y + 30, name, 19, anchor="start")
    drawing.text(264, y + 54, f"run in {runtime}", 16, FAINT, anchor="start")
    drawing.text(492, y + 40, "= Keras", 17, GOOD, anchor="end")
    drawing.check(514, y + 34)
    drawing.arrow((538, y + 34), (572, y + 34))
    drawing.box(580, y, 164, 68)
    drawing.text(662, y + 40, target, 18)


if __name__ == "__main__":
    main()
