"""Reference outputs, and ways to read a sequence."""

from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def golden():
    """A function from a name to the arrays of a reference."""
    return lambda name: np.load(DATA / f"{name}.npz")


@pytest.fixture
def read():
    """A function that reads a sequence in parts of the given sizes, the state carried between them."""

    def in_parts(layer, x, sizes):
        state, outputs, start = layer.init_cache(len(x)), [], 0
        for size in sizes:
            part = x[:, start : start + size]
            output, state = layer(part, part, cache=state, cache_index=np.int32(start))
            outputs.append(np.asarray(output))
            start += size
        return np.concatenate(outputs, axis=1), {name: np.asarray(slab) for name, slab in state.items()}

    return in_parts
