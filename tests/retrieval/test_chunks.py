"""Documents on disk, cut into chunks."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from keras_transformer.retrieval import ChunkDatabase, Chunks, InvalidDatabaseError, RetrievalError
from keras_transformer.text import Bytes, MissingTextError

DOCUMENTS = ["the cat sat on the mat", "ha", "the cat ate\nthe rat\n"]


@pytest.fixture
def chunks(tmp_path):
    return Chunks.build(tmp_path, DOCUMENTS, Bytes(), chunk_size=4)


def test_chunks_are_the_documents_in_order(chunks):
    tokenizer = Bytes()
    assert (len(chunks), chunks.num_documents) == (5 + 0 + 5, 3)
    texts = [tokenizer.decode(row) for row in chunks.tokens(np.arange(10))]
    assert texts == ["the ", "cat ", "sat ", "on t", "he m", "the ", "cat ", "ate\n", "the ", "rat\n"]
    assert chunks.documents(np.arange(10)).tolist() == [0] * 5 + [2] * 5
    assert chunks.starts(np.array([0, 4, 5])).tolist() == [0, 16, 24]
    assert isinstance(chunks.token_ids, np.memmap)
    assert chunks.token_ids.dtype == np.dtype("<u2")


def test_a_passage_ends_with_its_document(chunks):
    token_ids, mask = chunks.passages([[3, 9], [-1, 0]], length=9)
    assert Bytes().decode(token_ids[0, 0]) == "on the ma"
    assert mask.sum(axis=-1).tolist() == [[9, 4], [0, 9]]
    assert not token_ids[~mask].any()
    assert Bytes().decode(token_ids[0, 1][mask[0, 1]]) == "rat\n"


def test_files_are_documents_and_separators_part_them(tmp_path):
    for name, text in (("a.txt", "one\ntwo\n\n\nthree\n"), ("b.txt", "\nfour")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    starts = {}
    for separator in (None, ""):
        directory = tmp_path / f"with {separator!r}"
        directory.mkdir()
        starts[separator] = Chunks.build(directory, paths, Bytes(), 2, separator).document_starts.tolist()
    assert starts == {None: [0, 16, 21], "": [0, 8, 14, 18]}
    with pytest.raises(MissingTextError, match=r"no such.txt"):
        Chunks.build(tmp_path, str(tmp_path / "no such.txt"), Bytes(), 2)


def test_loaded_is_what_was_built(chunks, tmp_path):
    loaded = Chunks.load(tmp_path, 4, Bytes().vocabulary_size)
    np.testing.assert_array_equal(loaded.tokens(np.arange(10)), chunks.tokens(np.arange(10)))
    (tmp_path / "token_ids.bin").write_bytes(b"0123")
    with pytest.raises(InvalidDatabaseError, match="end with the 2 tokens"):
        Chunks.load(tmp_path, 4, Bytes().vocabulary_size)
    with pytest.raises(InvalidDatabaseError, match="no valid chunks"):
        Chunks.load(tmp_path / "nothing", 4, 300)


def test_memory_does_not_grow_with_the_text(tmp_path):
    """Of arrays and lists, that is; pages of files on disk the system gives and takes."""
    peaks = []
    for count in (2, 8):
        path = tmp_path / f"{count}.txt"
        line = "all work and no play makes jack a dull boy, and so on without end\n" * 16
        path.write_text(line * (count * 2**20 // len(line)), encoding="utf-8")
        tracemalloc.start()
        embed = lambda token_ids: token_ids[:, :4].astype("float32") + 1.0  # noqa: E731
        database = ChunkDatabase.build(tmp_path / "database", path, Bytes(), chunk_size=32, embed=embed)
        database.neighbors(database.chunks.tokens([0]), 2, 64)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_refused(tmp_path):
    with pytest.raises(RetrievalError, match="chunk_size"):
        Chunks(np.arange(4), [0, 4], 0)
    with pytest.raises(RetrievalError, match="begin at 0"):
        Chunks(np.arange(4), [0, 5], 2)
    with pytest.raises(RetrievalError, match="ascending order"):
        Chunks(np.arange(4), [0, 3, 2, 4], 2)


def test_the_room_needs_no_keras():
    code = "import sys, keras_transformer.retrieval; print({'keras', 'tensorflow', 'faiss'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
