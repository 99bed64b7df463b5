"""Byte-pair encoding of whole texts in a graph, with bytes for characters that have no token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.models.byte_level import Prefix
from keras_transformer.export.text.models.byte_pairs import Merges
from keras_transformer.export.text.models.neighbors import Neighbors
from keras_transformer.export.text.normalization.code_points import LIMIT, PagedTable
from keras_transformer.export.text.steps import before, code_points, gather, look_up, repeated
from keras_transformer.export.text.tokenizer_parts import pair_of, parts_of, unsupported
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.utils.types import Tensor


def with_fallback(
    content: Mapping[str, Any], parts: list[Any], merges: Merges
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The encoder of BPE of whole texts, whose characters without a token are bytes: Llama 2, Mistral, Gemma.

    Args:
        content: the content of a `tokenizer.json`.
        parts: its pre-tokenizers.
        merges: its `Merges`.

    Raises:
        InvalidModelError: it has no token for each byte, or another pre-tokenizer or normalizer.
    """
    vocabulary = content["model"]["vocab"]
    tokens = [vocabulary.get(f"<0x{value:02X}>") for value in range(256)]
    if not content["model"].get("byte_fallback") or None in tokens:
        raise unsupported("BPE that is neither of bytes nor has a token for each byte")
    prefix = _space_prefix(content, parts)
    known = np.full(LIMIT, -1, "int32")
    for token, index in vocabulary.items():
        if len(token) == 1:
            known[ord(token)] = index
    known[ord(" ")] = known[ord(SPACE)]
    table, bytes_table = PagedTable(known), np.array(tokens, "int32")
    neighbors = _neighbors(content["model"])

    def encode(values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, rows = (values, rows) if prefix is None else prefix(values, rows)
        codes, places = code_points(values)
        ids = look_up(table, codes)
        sizes = tf.concat([places[1:], tf.shape(values)], 0) - places
        item, offset = repeated(tf.where(ids >= 0, 1, sizes))
        spelled = gather(bytes_table, tf.gather(values, tf.gather(places, item) + offset))
        ids = tf.gather(ids, item)
        rows = tf.gather(rows, tf.gather(places, item))
        ids = tf.where(ids >= 0, ids, spelled)
        begins = tf.logical_or(before(rows, -1) != rows, tf.logical_not(neighbors(ids)))
        found, where = merges(ids, begins)
        return found, tf.gather(rows, where)

    return encode


def _neighbors(model: Mapping[str, Any]) -> Neighbors:
    """The characters that are neighbors in a token. No merge joins others: texts are cut between them."""
    vocabulary = model["vocab"]
    found = set()
    for token in {"".join(pair_of(merge)) for merge in model["merges"]}:
        ids = [vocabulary.get(each) for each in token]
        found |= {pair for pair in pairwise(ids) if None not in pair}
    return Neighbors(found, max(vocabulary.values()) + 1)


def _space_prefix(content: Mapping[str, Any], parts: list[Any]) -> Prefix | None:
    """What puts a space before a text, of the normalizers and pre-tokenizers that are known to leave texts whole."""
    prefix, replaces, blank = None, False, SPACE.encode()
    for part in parts_of(content.get("normalizer")):
        if part["type"] == "Prepend" and part["prepend"] == SPACE and not replaces:
            prefix = Prefix(blank)
        elif part["type"] == "Replace" and part == {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}:
            replaces = True
        else:
            raise unsupported(f"BPE with byte fallback and the normalizer {part['type']}")
    for part in parts:
        if part["type"] == "Metaspace" and part.get("replacement") == SPACE and part.get("split") is False:
            replaces = True
            if part.get("prepend_scheme") != "never":
                prefix = Prefix(blank, skips=(b" ", blank))
        elif part["type"] != "Split" or part.get("pattern") != {"String": " "} or not replaces:
            raise unsupported(f"BPE with byte fallback and the pre-tokenizer {part['type']}")
    if not replaces:
        raise unsupported("BPE with byte fallback that does not replace spaces")
    return prefix
