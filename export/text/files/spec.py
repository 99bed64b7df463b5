"""The signatures of a tokenizer's bundle, with the texts on which each file is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.tokenizers import BYTES, LENGTHS, text_rows
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.text.detokenize import DetokenizeGraph
from keras_transformer.export.text.files.probe_texts import PROBE_TEXTS
from keras_transformer.export.text.graph import IDS, MASK, TokenizeGraph

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

TOKENIZE, DETOKENIZE = "tokenize", "detokenize"
ROWS_SPEC = ArraySpec(BYTES, "uint8", (None, None), ("batch", "bytes"))
LENGTHS_SPEC = ArraySpec(LENGTHS, "int32", (None,), ("batch",))
_TOKENS = ArraySpec(IDS, "int32", (None, None), ("batch", "length"))
_MASKS = ArraySpec(MASK, "bool", (None, None), ("batch", "length"))
# Ids of a row, and number of rows of random ids.
_WIDTH, _RANDOM = 64, 64


def text_spec(tokenizer: Tokenizer, options: Mapping[str, Any]) -> ExportSpec:
    """The `ExportSpec` of a tokenizer: `tokenize`, and `detokenize` where the tokenizer decodes token by token.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.
        options: dict of "start", "end" and "max_length".

    Raises:
        InvalidModelError: the tokenizer cannot be a graph.
    """
    size, width = tokenizer.vocabulary_size, min(_WIDTH, max((options.get("max_length") or 2 * _WIDTH) // 2, 1))
    rows = [list(range(at, min(at + width, size))) for at in range(0, size, width)]
    rows += np.random.default_rng(0).integers(0, size, (_RANDOM, width)).tolist()
    # Texts of all tokens, and those on which implementations differ.
    batches = [PROBE_TEXTS[:1], ("",), *_batches(PROBE_TEXTS, 32), *_batches(tokenizer.decode(rows), 256)]
    expected = [padded_ids(tokenizer.encode(list(texts), **options), tokenizer) for texts in batches]
    probes = [
        Probe(text_rows(texts), f"{len(texts)} texts", outputs)
        for texts, outputs in zip(batches, expected, strict=True)
    ]
    signatures = {
        TOKENIZE: Signature(TokenizeGraph(tokenizer, options), (ROWS_SPEC, LENGTHS_SPEC), probes, is_repeatable=True)
    }
    try:
        graph = DetokenizeGraph(tokenizer)
    except InvalidModelError:
        return ExportSpec(signatures, tolerance=1e-6)
    given = [*expected[:4], *(padded_ids(each, tokenizer) for each in _batches(rows, 256))]
    probes = [Probe(each, f"{len(each[IDS])} rows of ids", text_rows(_decoded(each, tokenizer))) for each in given]
    signatures[DETOKENIZE] = Signature(graph, (_TOKENS, _MASKS), probes, is_repeatable=True)
    return ExportSpec(signatures, tolerance=1e-6)


def _batches(items: Sequence[object], size: int) -> list[Sequence[Any]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _decoded(arrays: Mapping[str, np.ndarray], tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(row[mask].tolist()) for row, mask in zip(arrays[IDS], arrays[MASK], strict=True)]


def padded_ids(rows: Sequence[Sequence[int]], tokenizer: Tokenizer, width: int | None = None) -> dict[str, np.ndarray]:
    """Rows of ids as arrays, padded on the side of the tokenizer to a width, by default the longest's, at least 1."""
    width = width or max(1, *map(len, rows))
    ids = np.full((len(rows), width), tokenizer.pad_id or 0, "int32")
    mask = np.zeros(ids.shape, bool)
    for number, row in enumerate(rows):
        place = slice(width - len(row), width) if getattr(tokenizer, "padding_side", "") == "left" else slice(len(row))
        ids[number, place], mask[number, place] = row, True
    return {IDS: ids, MASK: mask}
