"""Lazy tensors give the parts that arrays have, and read no more of the file than those need."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_transformer.checkpoints.files.folder import Folder
from keras_transformer.checkpoints.files.lazy_tensors import LazyTensor
from keras_transformer.checkpoints.layouts import Fused, HeadByHead, Matrix, Stacked, Transposed

DRAWN = np.random.default_rng(0)
TABLE = DRAWN.normal(size=(6, 4, 5))
LAZY = {
    "transposed": lambda x: x.T,
    "permuted": lambda x: x.transpose(1, 0, 2),
    "merged": lambda x: x.reshape(24, 5),
    "merged, transposed": lambda x: x.reshape(6, 20).T,
    "split": lambda x: x.reshape((2, 3, 4, 5)),
    "of other rows": lambda x: x.reshape(-1, 10),
    "with ones": lambda x: x.reshape(1, 6, 1, 20, 1),
    "cut": lambda x: np.split(x, [1, 3], axis=1)[1],
    "in thirds": lambda x: np.split(x, 3)[2],
    "sliced": lambda x: x[2:5],
    "stacked": lambda x: np.stack([x, x[:6]]),
    "stacked inside": lambda x: np.stack([x, x], axis=-1),
    "joined": lambda x: np.concatenate([x, x], axis=-1),
    "heads": lambda x: np.split(x.reshape(24, 5).T.reshape(5, 2, 12), [4], axis=-1)[1].reshape(5, 4, 4),
}


class Counted:
    """A lazy tensor of an array, and how many elements were read."""

    def __init__(self, array):
        self.array, self.count = array, 0
        self.tensor = LazyTensor(array.shape, self._read)

    def _read(self, bounds):
        part = self.array[tuple(slice(*pair) for pair in bounds)]
        self.count += part.size
        return part


def random_bounds(shape):
    return tuple(tuple(map(int, np.sort(DRAWN.choice(size + 1, 2, replace=False)))) for size in shape)


def cut(array, bounds):
    return array[tuple(slice(*pair) for pair in bounds)]


@pytest.mark.parametrize("name", LAZY)
def test_parts_are_those_of_the_array(name):
    expected, found = LAZY[name](TABLE), LAZY[name](Counted(TABLE).tensor)
    assert isinstance(found, LazyTensor)
    assert (found.shape, found.ndim) == (expected.shape, expected.ndim)
    for _ in range(40):
        bounds = random_bounds(expected.shape)
        np.testing.assert_array_equal(found.part(bounds), cut(expected, bounds))
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize(
    "function",
    [lambda x: x[..., ::2], lambda x: x * 2 + 1, lambda x: np.squeeze(x[:1]), lambda x: x.astype("float32"), list],
    ids=["strided", "computed", "squeezed", "cast", "iterated"],
)
def test_anything_else_computes_with_the_whole_array(function):
    np.testing.assert_array_equal(function(Counted(TABLE).tensor), function(TABLE))


@pytest.mark.parametrize(
    "layout, tensors, shapes",
    [
        (Matrix(1), [(8, 6)], [(6, 2, 4)]),
        (Matrix(2), [(6, 8)], [(2, 4, 6)]),
        (Transposed((1, 0)), [(4, 6)], [(6, 4)]),
        (Fused(Matrix(1)), [(24, 6)], [(6, 2, 4)] * 3),
        (Stacked(3, Matrix(1)), [(8, 6)] * 3, [(3, 6, 8)]),
    ],
    ids=["heads", "output", "transposed", "fused", "experts"],
)
def test_halves_of_a_weight_read_halves_of_the_tensors(layout, tensors, shapes):
    arrays = [DRAWN.normal(size=shape) for shape in tensors]
    counted = [Counted(array) for array in arrays]
    weights = layout.read([each.tensor for each in counted], shapes)
    for expected, weight in zip(layout.read(arrays, shapes), weights, strict=True):
        half = ((0, expected.shape[0] // 2), *((0, size) for size in expected.shape[1:]))
        if len(weights) == 1 and expected.shape[0] == 3:  # The first of three experts.
            half = ((0, 1), *half[1:])
        np.testing.assert_array_equal(weight.part(half), cut(expected, half))
    share = 1 / 3 if isinstance(layout, Stacked) else 1 / 2
    assert sum(each.count for each in counted) == share * sum(array.size for array in arrays)


def test_interleaved_heads_are_those_of_the_array():
    tensor, shapes = DRAWN.normal(size=(24, 5)), [(5, 2, 4)] * 3
    found = HeadByHead().read([Counted(tensor).tensor], shapes)
    for weight, expected in zip(found, HeadByHead().read([tensor], shapes), strict=True):
        np.testing.assert_array_equal(weight.part(((1, 3), (1, 2), (0, 4))), expected[1:3, 1:2])


def test_a_folder_reads_parts_of_a_file(tmp_path):
    tensors = {"table": DRAWN.normal(size=(3, 4)).astype("float16"), "scalar": np.array(2.5, "float32")}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    folder = Folder(tmp_path)
    part = folder.lazy("table").part(((1, 3), (2, 4)))
    assert part.dtype == np.float16
    np.testing.assert_array_equal(part, tensors["table"][1:3, 2:4])
    assert float(folder.lazy("scalar").part(())) == 2.5
