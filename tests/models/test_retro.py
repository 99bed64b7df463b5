"""RETRO: what sees which neighbors, reading in steps, and its sizes."""

import math

import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import load_model, tasks
from keras_transformer.models import RETRO, Size, Stepwise
from keras_transformer.models.text.decoders.retro import ENCODER_SIZE, SIZES, RetroSize

SMALL, CHUNK, COUNT, SLOTS, WORDS = Size(3, 16, 2, 32), 4, 2, 24, 50
STORED = "neighbor_encoder_neighbor_token_ids"


def made(position="rotary", **options):
    model = RETRO(
        SMALL,
        WORDS,
        encoder_size=Size(2, 12, 2, 24),
        chunk_size=CHUNK,
        num_neighbors=COUNT,
        retrieval_layers=(2, 3),
        position=position,
        **options,
    )
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(0.05, 0.3, weight.shape) for weight in model.get_weights()])
    return model


def inputs(length=19, chunks=4):
    rng = np.random.default_rng(0)
    return {
        "token_ids": rng.integers(0, WORDS, (3, length)).astype("int32"),
        "padding_mask": np.ones((3, length), bool),
        "neighbor_token_ids": rng.integers(0, WORDS, (3, chunks, COUNT, 2 * CHUNK)).astype("int32"),
        "neighbor_mask": rng.random((3, chunks, COUNT, 2 * CHUNK)) > 0.3,
    }


def stored(given):
    """Neighbors as a cache holds them."""
    flat = np.where(given["neighbor_mask"], given["neighbor_token_ids"] + 1, 0)
    rows = flat.reshape(len(flat), -1, COUNT * 2)
    return np.pad(rows, ((0, 0), (0, SLOTS - rows.shape[1]), (0, 0))).astype("int32")[:, None]


@pytest.fixture(scope="module")
def model():
    return made()


@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_changing_a_neighbor_changes_nothing_before_the_next_chunks_first_token(model, chunk):
    given = inputs()
    before = np.array(model(given))
    changed = given["neighbor_token_ids"].copy()
    changed[:, chunk] = (changed[:, chunk] + 7) % WORDS
    differs = np.abs(np.array(model({**given, "neighbor_token_ids": changed})) - before).max(axis=(0, 2)) > 0
    # What is said of the next chunk's first token stands at this chunk's last.
    last = (chunk + 1) * CHUNK - 1
    assert not differs[:last].any()
    assert differs[last:].all()


def test_changing_a_token_changes_nothing_before_it(model):
    given = inputs()
    before = np.array(model(given))
    for place in (0, 7, 10, 18):
        token_ids = given["token_ids"].copy()
        token_ids[:, place] = (token_ids[:, place] + 1) % WORDS
        differs = np.abs(np.array(model({**given, "token_ids": token_ids})) - before).max(axis=(0, 2)) > 0
        assert not differs[:place].any()
        assert differs[place]


def test_a_chunk_is_read_into_its_neighbors(model):
    """The encoder looks at the chunk: a token of it changes what its last token gets of neighbors."""
    encoder = model.get_layer("neighbor_encoder")
    given, rng = inputs(), np.random.default_rng(2)
    x = rng.normal(size=(3, 16, 16)).astype("float32")
    neighbors = {"token_ids": given["neighbor_token_ids"], "neighbor_mask": given["neighbor_mask"]}
    before, _ = encoder(x, **neighbors)
    x[:, 5] += 1.0
    after, _ = encoder(x, **neighbors)
    differs = np.abs(np.array(after) - np.array(before)).max(axis=(0, 2, 3)) > 0
    assert differs.tolist() == [False, True, False, False]


@pytest.mark.parametrize("position", exhaustive_but(["rotary", "transformer_xl", None], "transformer_xl"))
def test_whole_is_pieces_is_steps(position):
    model, given = made(position), inputs()
    whole, steps = np.array(model(given)), Stepwise(model)
    for sizes in ([1] * 19, [7, 12], [3, 1, 9, 6]):
        cache, outputs, index = {**steps.init_cache(3, SLOTS), STORED: stored(given)}, [], 0
        for size in sizes:
            output, cache = steps(given["token_ids"][:, index : index + size], cache, np.int32(index))
            outputs.append(np.array(output))
            index += size
        np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=2e-6)


def test_prompts_of_different_lengths(model):
    given, steps = inputs(), Stepwise(model)
    whole, lengths = np.array(model(given)), np.array([13, 6, 12], "int32")
    cache = {**steps.init_cache(3, SLOTS), STORED: stored(given)}
    output, cache = steps(given["token_ids"], cache, np.int32(0), lengths)
    following = np.stack([row[at : at + 5] for row, at in zip(given["token_ids"], lengths, strict=True)])
    more, _ = steps(following, cache, lengths)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(np.array(output)[row, :length], whole[row, :length], atol=2e-6)
        np.testing.assert_allclose(np.array(more)[row], whole[row, length : length + 5], atol=2e-6)


def test_padding_and_chunks_without_neighbors_change_nothing(model):
    given = inputs()
    whole = np.array(model(given))
    padded = {**given, "padding_mask": np.arange(19) < np.array([[19], [9], [14]])}
    for row, length in enumerate((19, 9, 14)):
        np.testing.assert_allclose(np.array(model(padded))[row, :length], whole[row, :length], atol=2e-6)
    fewer = {name: array[:, :2] if name.startswith("neighbor") else array for name, array in given.items()}
    hidden = {**given, "neighbor_mask": given["neighbor_mask"] & (np.arange(4) < 2)[:, None, None]}
    np.testing.assert_allclose(model(fewer), model(hidden), atol=2e-6)
    assert np.abs(np.array(model(fewer)) - whole).max() > 1e-3


@pytest.mark.exhaustive
def test_trains_and_is_saved(tmp_path):
    model = tasks.LanguageModel(made())
    given = inputs(length=16)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(given, given["token_ids"], epochs=1, batch_size=3, verbose=0)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(given), model(given))


@pytest.mark.exhaustive
def test_without_a_database_it_generates_as_it_reads_without_neighbors():
    model = tasks.LanguageModel(made())
    prompt = [3, 1, 4, 1, 5]
    found = model.generate(prompt, max_new_tokens=9)
    none = {"neighbor_token_ids": np.zeros((1, 1, 2, 8), "int32"), "neighbor_mask": np.zeros((1, 1, 2, 8), bool)}
    for _ in range(9):
        given = {"token_ids": np.array([prompt]), "padding_mask": np.ones((1, len(prompt)), bool), **none}
        prompt = [*prompt, int(np.argmax(np.array(model(given))[0, -1]))]
    assert found == prompt[5:]


def kernels(size, encoder, retrieving, reading):
    """The parameters of all kernels, counted by hand."""

    def attention(size, width, key_width):
        heads = size.num_heads * size.key_dim
        return heads * (2 * width + 2 * key_width) + heads * heads  # The last are relative positions.

    def blocks(size):
        own = attention(size, size.hidden_dim, size.hidden_dim) + 2 * size.hidden_dim * size.intermediate_dim
        return size.num_layers * own

    crossing = retrieving * attention(size, size.hidden_dim, encoder.hidden_dim)
    return blocks(size) + blocks(encoder) + crossing + reading * attention(encoder, encoder.hidden_dim, size.hidden_dim)


def test_the_sizes_have_as_many_parameters_as_the_paper_says():
    size, encoder = RetroSize(7, 10, 2, 14, 4), RetroSize(2, 6, 3, 9, 2)
    model = RETRO(size, 20, encoder_size=encoder, chunk_size=4)
    assert sum(math.prod(each.shape) for each in model.weights if each.name == "kernel") == kernels(size, encoder, 1, 1)
    for name, millions in {"172M": 172, "425M": 425, "1.5B": 1451, "7.5B": 7532}.items():
        retrieving = len(range(6, SIZES[name].num_layers + 1, 3))
        assert kernels(SIZES[name], ENCODER_SIZE, retrieving, 1) / 1e6 == pytest.approx(millions, rel=0.02)


def test_refused():
    small = {"encoder_size": SMALL, "chunk_size": 4}
    with pytest.raises(ValueError, match="none of the 3 layers"):
        RETRO(SMALL, 10, **small)
    with pytest.raises(ValueError, match=r"must be in \[1, 3\]. Received: \(4,\)"):
        RETRO(SMALL, 10, **small, retrieval_layers=(4,))
    with pytest.raises(ValueError, match="one stream"):
        RETRO(SMALL, 10, **small, retrieval_layers=(2,), residual="residual")
    with pytest.raises(ValueError, match="inside attention"):
        RETRO(SMALL, 10, **small, retrieval_layers=(2,), position="sinusoidal")
    with pytest.raises(ValueError, match="172M"):
        RETRO("3B", 10)
