"""The hashes of TensorFlow's strings, by which `Hashing`, `HashedCrossing` and `StringLookup` choose a bin."""

from __future__ import annotations

from collections.abc import Iterable

_MASK = 2**64 - 1
# Constants of FarmHash.
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
# The key and the multiplier of TensorFlow's hashed crosses.
_CROSS_KEY, _CROSS_MULTIPLIER = 0xDECAFCAFFE, 0xC6A4A7935BD1E995


def farm_hash(text: bytes) -> int:
    """FarmHash's `Fingerprint64`, the hash of `tf.strings.to_hash_bucket_fast`.

    Args:
        text: bytes.

    Example:

    >>> farm_hash(b"green") % 10
    4
    """
    size = len(text)
    if size <= 16:
        return _up_to_16(text, size)
    if size <= 32:
        return _up_to_32(text, size)
    return _up_to_64(text, size) if size <= 64 else _long(text, size)


def sip_hash(text: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4, the hash of `tf.strings.to_hash_bucket_strong`.

    Args:
        text: bytes.
        key: two integers of 64 bits.

    Reference: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.

    Example:

    >>> hex(sip_hash(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)))
    '0xa129ca6149be45e5'
    """
    first, second = (each & _MASK for each in key)
    state = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    padded = text + bytes(-(len(text) + 1) % 8) + bytes([len(text) % 256])
    for start in range(0, len(padded), 8):
        word = _word(padded, start)
        state[3] ^= word
        _sip_rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    _sip_rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def cross_hash(fingerprints: Iterable[int]) -> int:
    """The hash of several features, as `tf.sparse.cross_hashed` combines them.

    Args:
        fingerprints: the FarmHash of each text, and each integer as it is.
    """
    combined = _CROSS_KEY
    for each in fingerprints:
        combined = _concatenated(combined, each & _MASK)
    return combined


def _concatenated(first: int, second: int) -> int:
    result = first ^ _CROSS_MULTIPLIER
    result ^= _shift_mix(second * _CROSS_MULTIPLIER & _MASK) * _CROSS_MULTIPLIER & _MASK
    result = _shift_mix(result * _CROSS_MULTIPLIER & _MASK) * _CROSS_MULTIPLIER & _MASK
    return _shift_mix(result)


def _sip_rounds(state: list[int], count: int) -> None:
    a, b, c, d = state
    for _ in range(count):
        a, c = (a + b) & _MASK, (c + d) & _MASK
        b, d = _left(b, 13) ^ a, _left(d, 16) ^ c
        a = _left(a, 32)
        c, a = (c + b) & _MASK, (a + d) & _MASK
        b, d = _left(b, 17) ^ c, _left(d, 21) ^ a
        c = _left(c, 32)
    state[:] = a, b, c, d


def _left(value: int, bits: int) -> int:
    """A value of 64 bits, rotated to the left."""
    return (value << bits | value >> (64 - bits)) & _MASK


def _right(value: int, bits: int) -> int:
    """A sum, rotated to the right as a value of 64 bits."""
    value &= _MASK
    return (value >> bits | value << (64 - bits)) & _MASK


def _word(text: bytes, start: int, size: int = 8) -> int:
    return int.from_bytes(text[start : start + size], "little")


def _shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def _pair(first: int, second: int, multiplier: int) -> int:
    """The hash of two values."""
    first, second = first & _MASK, second & _MASK
    mixed = _shift_mix((first ^ second) * multiplier & _MASK)
    return _shift_mix((second ^ mixed) * multiplier & _MASK) * multiplier & _MASK


def _up_to_16(text: bytes, size: int) -> int:
    multiplier = _K2 + 2 * size
    if size >= 8:
        first, last = _word(text, 0) + _K2, _word(text, size - 8)
        return _pair(_right(last, 37) * multiplier + first, (_right(first, 25) + last) * multiplier, multiplier)
    if size >= 4:
        return _pair(size + (_word(text, 0, 4) << 3), _word(text, size - 4, 4), multiplier)
    if size == 0:
        return _K2
    start, end = text[0] + (text[size >> 1] << 8), size + (text[-1] << 2)
    return _shift_mix((start * _K2 ^ end * _K0) & _MASK) * _K2 & _MASK


def _ends(text: bytes, size: int, multiplier: int, factor: int) -> tuple[int, int, int]:
    """What the first and the last 16 bytes give: the first word, and two sums."""
    first, second = _word(text, 0) * factor & _MASK, _word(text, 8)
    last, before = _word(text, size - 8) * multiplier & _MASK, _word(text, size - 16) * _K2
    whole = _right(first + second, 43) + _right(last, 30) + before
    return first, whole & _MASK, first + _right(second + _K2, 18) + last


def _up_to_32(text: bytes, size: int) -> int:
    multiplier = _K2 + 2 * size
    _, whole, rest = _ends(text, size, multiplier, _K1)
    return _pair(whole, rest, multiplier)


def _up_to_64(text: bytes, size: int) -> int:
    multiplier = _K2 + 2 * size
    first, whole, rest = _ends(text, size, multiplier, _K2)
    ends = _pair(whole, rest, multiplier)
    third, fourth = _word(text, 16) * multiplier & _MASK, _word(text, 24)
    left = (whole + _word(text, size - 32)) * multiplier & _MASK
    right = (ends + _word(text, size - 24)) * multiplier
    inner = _right(third + fourth, 43) + _right(left, 30) + right
    return _pair(inner, third + _right(fourth + first, 18) + left, multiplier)


def _long(text: bytes, size: int) -> int:
    x, y = 81 * _K2 + _word(text, 0) & _MASK, 81 * _K1 + 113 & _MASK
    z = _shift_mix(y * _K2 + 113 & _MASK) * _K2 & _MASK
    state = x, y, z, (0, 0), (0, 0)
    for start in range(0, (size - 1) // 64 * 64, 64):
        state = _block(text, start, state, _K1, 1)
    x, y, z, v, w = state
    multiplier = _K1 + ((z & 0xFF) << 1)
    w = w[0] + ((size - 1) & 63) & _MASK, w[1]
    v = v[0] + w[0] & _MASK, v[1]
    w = w[0] + v[0] & _MASK, w[1]
    x, y, z, v, w = _block(text, size - 64, (x, y, z, v, w), multiplier, 9)
    first = _pair(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z
    return _pair(first, _pair(v[1], w[1], multiplier) + x, multiplier)


_State = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def _block(text: bytes, start: int, state: _State, multiplier: int, factor: int) -> _State:
    """The state after 64 more bytes."""
    x, y, z, v, w = state
    x = _right(x + y + v[0] + _word(text, start + 8), 37) * multiplier & _MASK
    y = _right(y + v[1] + _word(text, start + 48), 42) * multiplier & _MASK
    x ^= w[1] * factor & _MASK
    y = y + v[0] * factor + _word(text, start + 40) & _MASK
    z = _right(z + w[0], 33) * multiplier & _MASK
    v = _weak(text, start, v[1] * multiplier, x + w[0])
    w = _weak(text, start + 32, z + w[1], y + _word(text, start + 16))
    return z, y, x, v, w


def _weak(text: bytes, start: int, first: int, second: int) -> tuple[int, int]:
    """Two sums of 32 bytes and two seeds."""
    words = [_word(text, start + offset) for offset in (0, 8, 16, 24)]
    begun = first + words[0]
    second = _right(second + begun + words[3], 21)
    middle = begun + words[1] + words[2]
    return middle + words[3] & _MASK, second + _right(middle, 44) + begun & _MASK
