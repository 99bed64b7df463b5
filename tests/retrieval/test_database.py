"""The database of chunks: what it finds, and what it is on disk."""

import json

import numpy as np
import pytest

from keras_transformer.retrieval import (
    ChunkDatabase,
    Chunks,
    HashedNGrams,
    InvalidDatabaseError,
    NearestNeighbors,
    RetrievalError,
)
from keras_transformer.retrieval.n_grams import normalize
from keras_transformer.text import Bytes

WORDS = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "you",
    "that",
    "it",
    "he",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "his",
)
SIZE = 8


def texts(count, words=40, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, words)) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("retrieval") / "database"
    ChunkDatabase.build(directory, texts(30), Bytes(), chunk_size=SIZE)
    return directory


@pytest.fixture(scope="module")
def database(folder):
    return ChunkDatabase.load(folder)


def by_sorting(database, token_ids, count, excluded):
    keys = normalize(database.embed(database.chunks.tokens(np.arange(len(database)))))
    scores = normalize(database.embed(token_ids)) @ keys.T
    own = database.chunks.documents(np.arange(len(database))) == np.asarray(excluded)[:, None]
    return np.where(own, -np.inf, scores), np.argsort(-np.where(own, -np.inf, scores), axis=1)[:, :count]


def test_finds_the_most_alike_of_other_documents(database):
    ids = np.arange(0, len(database), 7)
    token_ids, own = database.chunks.tokens(ids), database.chunks.documents(ids)
    scores, expected = by_sorting(database, token_ids, 3, own)
    found = database.search(token_ids, 3, exclude_documents=own)
    # Equal scores come in any order.
    rows = np.arange(len(ids))[:, None]
    np.testing.assert_allclose(scores[rows, found], scores[rows, expected], atol=1e-5)
    assert (database.chunks.documents(found) != own[:, None]).all()
    # Without exclusion the best is the chunk itself, or another of the same tokens.
    np.testing.assert_array_equal(database.chunks.tokens(database.search(token_ids, 1)[:, 0]), token_ids)


def test_neighbors_of_all_chunks_are_those_of_each(database, tmp_path):
    every = database.neighbors_of(database.chunks, 2)
    ids = np.arange(len(database))
    own = database.chunks.documents(ids)
    np.testing.assert_array_equal(every, database.search(database.chunks.tokens(ids), 2, own))
    on_disk = database.neighbors_of(database.chunks, 2, tmp_path / "neighbors.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "neighbors.npy"), every)
    assert isinstance(on_disk, np.memmap)


def test_a_text_of_other_documents_excludes_none(database):
    others = Chunks(database.chunks.token_ids[:80], np.array([0, 80]), SIZE)
    found = database.neighbors_of(others, 1)[:, 0]
    np.testing.assert_array_equal(database.chunks.tokens(found), others.tokens(np.arange(10)))


def test_a_large_document_hides_no_other(tmp_path):
    documents = ["abcdefgh" * 50, "abcdefgx" * 2, "zzzzzzzz"]
    database = ChunkDatabase.build(tmp_path / "database", documents, Bytes(), chunk_size=SIZE)
    query = [Bytes().encode("abcdefgh")]
    assert database.search(query, 3, exclude_documents=[0])[0].tolist() == [50, 51, 52]
    assert database.search(query, 5, exclude_documents=[0])[0].tolist() == [50, 51, 52, -1, -1]
    _, mask = database.neighbors(query, 5, 16, exclude_documents=[0])
    assert mask[0].sum(axis=1).tolist() == [16, 8, 8, 0, 0]


@pytest.mark.parametrize("backend", ["exact", "faiss", "faiss_compressed", "usearch"])
def test_loaded_is_what_was_built(backend, tmp_path):
    if backend != "exact":
        pytest.importorskip(backend.partition("_")[0])
    built = ChunkDatabase.build(tmp_path / "database", texts(30), Bytes(), chunk_size=SIZE, backend=backend)
    loaded = ChunkDatabase.load(tmp_path / "database")
    ids = np.arange(0, len(built), 5)
    token_ids = built.chunks.tokens(ids)
    found = loaded.search(token_ids, 4, built.chunks.documents(ids))
    np.testing.assert_array_equal(found, built.search(token_ids, 4, built.chunks.documents(ids)))
    scores, best = by_sorting(built, token_ids, 4, built.chunks.documents(ids))
    rows = np.arange(len(ids))[:, None]
    assert (scores[rows, found] > scores[rows, best] - 1e-4).mean() > 0.9
    assert loaded.index.backend == backend


def test_compressed_vectors_are_searched_as_they_were():
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    states, queries = rng.normal(size=(3000, 16)).astype("float32"), rng.normal(size=(50, 16)).astype("float32")
    index = NearestNeighbors("faiss_compressed", effort=500, chunk_size=700)
    index.add(states)
    scores, ids = index.search(queries, 5)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ states.T, ids, 1), atol=1e-4)
    expected = np.argsort(-(queries @ states.T), axis=1)[:, :5]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(ids, expected, strict=True)]) > 4.5
    with pytest.raises(ValueError, match="at least 256"):
        NearestNeighbors("faiss_compressed").add(states[:100])


@pytest.mark.parametrize("name", ["token_ids.bin", "document_starts.npy", "keys.npy", "index.bin"])
def test_damage_is_found(folder, tmp_path, name):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-1] if whole else b"x")
    with pytest.raises(InvalidDatabaseError, match=rf"{name}' has \d+ bytes. Expected: {len(whole)}"):
        ChunkDatabase.load(tmp_path, verify=False)
    if whole:
        (tmp_path / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(InvalidDatabaseError, match=f"{name}' was modified"):
            ChunkDatabase.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InvalidDatabaseError, match=f"has no file '{name}'"):
        ChunkDatabase.load(tmp_path)


def test_manifests_that_are_none(folder, tmp_path):
    with pytest.raises(InvalidDatabaseError, match="contains no database"):
        ChunkDatabase.load(tmp_path)
    manifest = json.loads((folder / "database.json").read_text())
    for broken in ("[]", "{}", "half", json.dumps({**manifest, "files": {"../keys.npy": {"bytes": 1, "sha256": ""}}})):
        (tmp_path / "database.json").write_text(broken)
        with pytest.raises(InvalidDatabaseError):
            ChunkDatabase.load(tmp_path)
    for changes in ({"version": 2}, {"chunk_size": "8"}, {"index": {"backend": "none"}}):
        for path in folder.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        (tmp_path / "database.json").write_text(json.dumps({**manifest, **changes}))
        with pytest.raises(InvalidDatabaseError):
            ChunkDatabase.load(tmp_path)


def test_a_build_that_fails_leaves_what_was_there(tmp_path):
    directory = tmp_path / "database"
    ChunkDatabase.build(directory, texts(3), Bytes(), chunk_size=SIZE)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    def fails(token_ids):
        raise RuntimeError("no vectors today")

    with pytest.raises(RuntimeError, match="no vectors today"):
        ChunkDatabase.build(directory, texts(3, seed=1), Bytes(), chunk_size=SIZE, embed=fails)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["database"]
    ChunkDatabase.build(directory, texts(3, seed=1), Bytes(), chunk_size=SIZE)
    assert (directory / "token_ids.bin").read_bytes() != before["token_ids.bin"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(InvalidDatabaseError, match="not replaced"):
        ChunkDatabase.build(tmp_path / "mine", texts(3), Bytes())


def test_a_function_of_ones_own(tmp_path):
    embed = lambda token_ids: np.eye(300)[token_ids].mean(axis=1)  # noqa: E731
    ChunkDatabase.build(tmp_path / "database", texts(3), Bytes(), chunk_size=SIZE, embed=embed)
    with pytest.raises(RetrievalError, match="pass it as embed"):
        ChunkDatabase.load(tmp_path / "database")
    with pytest.raises(RetrievalError, match="another embed"):
        ChunkDatabase.load(tmp_path / "database", HashedNGrams(width=300))
    loaded = ChunkDatabase.load(tmp_path / "database", embed)
    assert loaded.search(loaded.chunks.tokens([5]), 1).shape == (1, 1)


def test_refused(database, tmp_path):
    with pytest.raises(RetrievalError, match="chunks of 8 tokens"):
        database.search([[1, 2, 3]], 1)
    with pytest.raises(RetrievalError, match="No document has a full chunk of 64"):
        ChunkDatabase.build(tmp_path / "database", ["short"], Bytes())
    assert not any(tmp_path.iterdir())
    full = NearestNeighbors()
    full.add(np.ones((2, 4)))
    with pytest.raises(RetrievalError, match="Pass an empty index"):
        ChunkDatabase.build(tmp_path / "database", texts(1), Bytes(), backend=full)
    with pytest.raises(RetrievalError, match="2 vectors"):
        ChunkDatabase(database.chunks, full, HashedNGrams())


def test_n_grams_count_shared_runs():
    """With a slot for every n-gram, dot products of counts equal those of dictionaries."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (6, 10))
    sizes = (1, 2, 3)

    def counts(row):
        runs = [tuple(row[at : at + size]) for size in sizes for at in range(len(row) - size + 1)]
        return {run: runs.count(run) for run in runs}

    def product(ours, theirs):
        return sum(count * theirs.get(run, 0) for run, count in ours.items())

    dictionaries = [counts(row.tolist()) for row in rows]
    expected = np.array([[product(ours, theirs) for theirs in dictionaries] for ours in dictionaries])
    norms = np.sqrt(np.diag(expected))
    vectors = HashedNGrams(width=2**16, sizes=sizes)(rows)
    np.testing.assert_allclose(vectors @ vectors.T, expected / np.outer(norms, norms), atol=1e-5)
    assert not np.allclose(HashedNGrams(seed=1)(rows), HashedNGrams()(rows))
    np.testing.assert_array_equal(HashedNGrams(sizes=(20,))(rows), np.zeros((6, 256)))
    with pytest.raises(RetrievalError, match="positive"):
        HashedNGrams(sizes=())
