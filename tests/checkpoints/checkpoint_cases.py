"""The folders of `tests/data/checkpoints`, each with what transformers computed for it."""

import pathlib

import numpy as np

FOLDERS = sorted(
    path.parent for path in (pathlib.Path(__file__).parents[1] / "data" / "checkpoints").glob("*/expected.npz")
)


class Expected:
    """The arrays of an `expected.npz`.

    Attributes:
        inputs, outputs: dicts of name to array.
        prompt, generated: int arrays `(B, T)`, `(B, new)`; the prompt may be features, float; None where the model does not
            generate.
    """

    def __init__(self, folder):
        with np.load(folder / "expected.npz") as arrays:
            self.inputs = {name.removeprefix("input/"): arrays[name] for name in arrays if name.startswith("input/")}
            self.outputs = {name.removeprefix("output/"): arrays[name] for name in arrays if name.startswith("output/")}
            self.prompt, self.generated = (arrays.get(name) for name in ("prompt", "generated"))

    @property
    def prompts(self):
        """What `generate` is given: lists of tokens, without the -1 that pads them; or features as they are."""
        if self.prompt.dtype.kind == "f":
            return list(self.prompt)
        return [[int(token) for token in row if token >= 0] for row in self.prompt]


def predicted(model, inputs):
    """What a model gives: a dict of arrays; a single output is "output" there."""
    result = model.predict(inputs if len(inputs) > 1 else next(iter(inputs.values())), verbose=0)
    return result if isinstance(result, dict) else {"output": result}


def assert_equal(found, expected, inputs, ratio):
    """Compares outputs where tokens are real, by a share of their scale, and of 10 at the least.

    A single output has any name.
    """
    mask = inputs.get("padding_mask", inputs.get("target_padding_mask"))
    for name, array in expected.items():
        ours = found[name] if name in found else found["output"]
        if mask is not None and array.shape[:2] == mask.shape and array.ndim >= 2:
            ours, array = ours[mask], array[mask]
        atol = ratio * max(10.0, np.abs(array).max(initial=0.0))
        np.testing.assert_allclose(ours, array, atol=atol, rtol=0, err_msg=name)
