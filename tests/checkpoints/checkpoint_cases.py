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
        """What `generate` is given: lists of tokens, without the -1 that pads them; or features as they are; or both."""
        if self.prompt.dtype.kind == "f":
            return list(self.prompt)
        token_ids = [[int(token) for token in row if token >= 0] for row in self.prompt]
        images = {name: self.inputs[name] for name in ("images", "patches", "patch_grid") if name in self.inputs}
        return {**images, "token_ids": token_ids} if images else token_ids

    @property
    def texts(self):
        """What `generate` gives: lists of tokens."""
        return [[int(token) for token in row if token >= 0] for row in self.generated]


def predicted(model, inputs):
    """What a model gives: a dict of arrays; a single output is "output" there."""
    result = model(inputs if len(inputs) > 1 else next(iter(inputs.values())), training=False)
    return {
        name: np.asarray(array) for name, array in (result if isinstance(result, dict) else {"output": result}).items()
    }


def difference(found, expected, inputs):
    """The largest difference of an output at real tokens: divided by its scale, at least 0.1, and by that, at least 10.

    A single output has any name. Where NaN is expected, such as at padded frames, anything may be.
    """
    mask = inputs.get("padding_mask", inputs.get("target_padding_mask"))
    differences = []
    for name, array in expected.items():
        ours = found[name] if name in found else next(iter(found.values()))
        assert ours.shape == array.shape, f"{name}: {ours.shape} is not {array.shape}"
        if mask is not None and array.shape[:2] == mask.shape and array.ndim >= 2:
            ours, array = ours[mask], array[mask]
        ours, array = ours[~np.isnan(array)], array[~np.isnan(array)]
        absolute, scale = np.abs(ours - array).max(initial=0.0), np.abs(array).max(initial=0.0)
        differences.append((absolute / max(0.1, scale), absolute / max(10.0, scale)))
    return tuple(float(value) for value in np.max(differences, axis=0))  # A NaN stays one.
