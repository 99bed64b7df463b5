"""BigBird: the reference by its own table of blocks, and our table under the masked dense formula."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import BigBirdAttention, BlockSparseAttention, SoftmaxAttention, Visibility
from keras_transformer.positions import ALiBi

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "bigbird_attention.npz")


def visibility(length, **options):
    slots = np.arange(length, dtype="int32")
    return Visibility.from_slots(slots, slots, **options)


def test_reference_by_its_random_blocks():
    """The reference's table as a layout: window, first and last block, random blocks for each head."""
    count, random = 12, GOLDEN["outputs/rand_blocks"]
    blocks = np.arange(count)
    layout = np.abs(blocks[:, None] - blocks) <= 1
    layout |= np.isin(blocks, (0, count - 1)) | np.isin(blocks, (0, count - 1))[:, None]
    layout = np.stack([layout, layout])
    for head, row in np.ndindex(2, count - 2):
        layout[head, row + 1, random[head, row]] = True
    x, mask = GOLDEN["inputs/x"], GOLDEN["inputs/key_mask"]
    heads = [
        (x @ GOLDEN[f"params/{name}.weight"].T + GOLDEN[f"params/{name}.bias"]).reshape(2, 48, 2, 8)
        for name in ("query", "key", "value")
    ]
    masks = {"query_mask": mask, "key_mask": mask}
    output = BlockSparseAttention(layout, block_size=4)(*heads, visibility=visibility(48, **masks))
    np.testing.assert_allclose(np.reshape(output, (2, 48, 16)), GOLDEN["outputs/y"], atol=2e-6)


def layout_of(layer, count):
    """The table as a dense layout; no block may stand in a row twice."""
    columns, valid = (np.asarray(x)[0] for x in layer.table(count, np.array([[count]], "int32")))
    layout = np.zeros((count, count), int)
    for row in range(count):
        np.add.at(layout[row], columns[row][valid[row]], 1)
    assert layout.max() == 1
    first, last = layer.num_first_blocks, layer.num_last_blocks
    layout[:first] = 1
    layout[max(0, count - last) :] = 1
    return layout.astype(bool)


@pytest.mark.parametrize("first, last, random, window", [(1, 1, 3, 3), (2, 0, 1, 1), (0, 0, 2, 5), (0, 2, 0, 3)])
def test_any_length_is_the_masked_dense_formula(first, last, random, window):
    layer = BigBirdAttention(4, window, random, first, last)
    for length in (1, 6, 17, 48, 83):
        count = -(-length // 4)
        layout = layout_of(layer, count)
        pattern = np.repeat(np.repeat(layout, 4, 0), 4, 1)[:length, :length]
        query, key, value = np.random.default_rng(0).normal(size=(3, 2, length, 4, 8)).astype("float32")
        key, value = key[:, :, :2], value[:, :, :2]
        output = layer(query, key, value, visibility=visibility(length), position=ALiBi())
        expected = SoftmaxAttention()(
            query, key, value, visibility=visibility(length, attention_mask=pattern), position=ALiBi()
        )
        np.testing.assert_allclose(output, expected, atol=1e-6)


def test_rows_of_a_padded_batch_are_those_alone():
    """The last block, and the blocks to draw from, are those of each row's tokens."""
    layer, lengths = BigBirdAttention(2, num_random_blocks=2), (40, 23, 5)
    heads = np.random.default_rng(0).normal(size=(3, 3, 40, 2, 4)).astype("float32")
    mask = np.arange(40) < np.array(lengths)[:, None]
    output = layer(*heads, visibility=visibility(40, query_mask=mask, key_mask=mask))
    for row, length in enumerate(lengths):
        alone = layer(*heads[:, row : row + 1, :length], visibility=visibility(length))
        np.testing.assert_allclose(output[row, :length], alone[0], atol=1e-6)


def test_random_blocks_are_spread_over_all_others():
    """Each row has its share of random blocks, none that it sees anyway, and all blocks are drawn about alike."""
    layer, count = BigBirdAttention(4, num_random_blocks=4), 200
    columns, valid = (np.asarray(x)[0] for x in layer.table(count, np.array([[count]], "int32")))
    random, rows = columns[:, -4:], np.arange(count)[:, None]
    assert valid[:, -4:].all()
    assert np.all(np.abs(random - rows) > 1)
    assert random.min() == 1
    assert random.max() == count - 2
    times = np.bincount(random.ravel(), minlength=count)[1:-1]
    assert times.std() < 3  # 4 on average; √4 of chance.
    other = BigBirdAttention(4, num_random_blocks=4, random_seed=1).table(count, np.array([[count]], "int32"))[0]
    assert np.mean(np.asarray(other)[0, :, -4:] != random) > 0.9


def test_sizes_out_of_range_are_refused():
    with pytest.raises(ValueError, match="odd"):
        BigBirdAttention(num_window_blocks=2)
    with pytest.raises(ValueError, match="num_random_blocks"):
        BigBirdAttention(num_random_blocks=-1)
