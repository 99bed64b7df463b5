import numpy as np
import pytest

from keras_transformer.data import Ragged, SequenceDataError

ROWS = [[5, 6, 7], [], [8], [9, 10]]


def test_rows_cuts_and_masks():
    rows = Ragged.of(ROWS)
    assert [row.tolist() for row in rows] == ROWS
    assert [row.tolist() for row in rows.cut(first=1)] == [[6, 7], [], [], [10]]
    assert [row.tolist() for row in rows.cut(last=2)] == [[5], [], [], []]
    assert [row.tolist() for row in rows.cut(first=1, last=1)] == [[6], [], [], []]
    assert rows.padded([3, 1, 0], 2, padding=-1).tolist() == [[9, 10], [-1, -1], [5, 6]]
    assert rows.mask([3, 1, 0], 4).astype(int).tolist() == [[1, 1, 0, 0], [0] * 4, [1, 1, 1, 0]]


def test_on_disk_is_the_same_and_stays_there(tmp_path):
    rows = Ragged.write(tmp_path / "rows", iter(ROWS))
    assert isinstance(rows.values, np.memmap)
    assert [row.tolist() for row in rows] == ROWS
    assert [row.tolist() for row in Ragged.open(tmp_path / "rows").cut(last=1)] == [[5, 6], [], [], [9]]


def test_writing_that_breaks_off_leaves_nothing_to_open(tmp_path):
    Ragged.write(tmp_path, [[1, 2]])
    with pytest.raises(SequenceDataError):
        Ragged.write(tmp_path, [[3], ["a word"]])
    with pytest.raises(SequenceDataError, match="holds no sequences"):
        Ragged.open(tmp_path)


def test_values_that_were_cut_off(tmp_path):
    Ragged.write(tmp_path, ROWS)
    (tmp_path / "values.int32").write_bytes(b"1234")
    with pytest.raises(SequenceDataError, match="has 4 bytes, expected 24"):
        Ragged.open(tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ragged(np.arange(3), [2, 2]),
        lambda: Ragged(np.arange(3), [2, -1]),
        lambda: Ragged(np.arange(3.0), [3]),
        lambda: Ragged(np.zeros((2, 2), int), [2, 2]),
        lambda: Ragged(np.arange(3), [1, 2], [0]),
        lambda: Ragged.of([1, 2]),
        lambda: Ragged.of([["a"]]),
        lambda: Ragged.of([[2**31]]),
    ],
)
def test_refuses(make):
    with pytest.raises(SequenceDataError):
        make()
