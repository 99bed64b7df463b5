"""GGUF files, written byte by byte."""

import struct

STRING, ARRAY, FLOAT32, UINT32, BOOL = 8, 9, 6, 4, 7
F32, Q4_0, Q4_1, Q8_0 = 0, 2, 3, 8
# The settings of a small Llama.
LLAMA = {
    "general.architecture": "llama",
    "llama.context_length": 16,
    "llama.embedding_length": 32,
    "llama.block_count": 1,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def text(value):
    """A string: its length, and its bytes."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key, value):
    """An entry of the metadata."""
    return text(key) + value_of(value)


def value_of(value):
    """The type of a value, and the value."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    items = b"".join(map(text, value)) if isinstance(value[0], str) else struct.pack(f"<{len(value)}i", *value)
    return struct.pack("<IIQ", ARRAY, STRING if isinstance(value[0], str) else 5, len(value)) + items


def tensor_info(name, sizes, kind, start):
    """The description of a tensor; `sizes` are in ggml's order, the axis of the blocks first."""
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, start)


def gguf_bytes(metadata, infos=(), data=b"", version=3, counts=None):
    """A file.

    Args:
        metadata: dict of key to value; or its entries as bytes.
        infos: list of `tensor_info`.
        data: bytes of all tensors.
        version: of the format.
        counts: the numbers of tensors and of entries that the file says to have.
    """
    entries = [entry(*each) for each in metadata.items()]
    counts = counts or (len(infos), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data
