"""Seeded mutations of bytes and of JSON."""

import copy
import json

# "../outside" and "OUTSIDE", which becomes its absolute path, are a file that nothing may read.
TEXTS = (
    "",
    "x",
    "\0",
    "../outside",
    "../../outside",
    "OUTSIDE",
    "..",
    ".",
    "a/../../outside",
    "é" * 300,
    "a" * 100_000,
    "\ud800",
)
NUMBERS = (-1, 0, 1, 2, 3, 7, -7, 255, 65_536, 2**31 - 1, 2**31, 2**32, 2**63, 2**70, 10**30, -(2**31))
FLOATS = (0.5, -0.5, 1.5, 1e-45, 1e-300, 1e300, -1e300, float("nan"), float("inf"))
OTHERS = (None, True, False, [], [None], [[]], {}, {"a": 1}, [1, 2, 3])
WORDS = (b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x01\0\0\0", b"\0" * 8, b"\xff" * 8, b"\0\0\0\0\0\0\0\x80")


def mutated_bytes(rng, content, head=None):
    """Returns damaged bytes: cut, flipped, zeroed, with extreme words, with bytes inserted, removed or repeated.

    Args:
        rng: `random.Random`.
        content: bytes.
        head: int. Three of four mutations lie in so many bytes at the beginning. Default: anywhere.
    """
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        end = min(len(data), head) if head and rng.random() < 0.75 else len(data)
        at, size = rng.randrange(max(end, 1)), rng.choice((1, 2, 4, 8, 32, 256))
        kind = rng.randrange(8)
        if kind == 0 and rng.random() < 0.3:
            del data[at:]
        elif kind in (0, 1):
            for _ in range(rng.choice((1, 1, 3, 10))):
                place = rng.randrange(max(end, 1))
                data[place : place + 1] = bytes([rng.randrange(256)])
        elif kind == 2:
            data[at : at + size] = bytes(len(data[at : at + size]))
        elif kind in (3, 4):
            at, word = at // 4 * 4 if kind == 3 else at, rng.choice(WORDS)
            data[at : at + len(word)] = word
        elif kind == 5:
            data[at:at] = rng.randbytes(size)
        elif kind == 6:
            del data[at : at + size]
        else:
            data[at:at] = data[at : at + size] * rng.choice((1, 2, 50))
    return bytes(data)


def paths_of(value, path=(), most=200):
    """Yields the path of every nested field; of long lists and dicts of the first fields only."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (key, each) in enumerate(pairs):
        if number >= most:
            return
        yield (*path, key)
        yield from paths_of(each, (*path, key), 8)


def mutated_json(rng, value):
    """Returns a copy of a JSON value in which one or more fields are removed, replaced, repeated, nested or moved."""
    result = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        paths = list(paths_of(result))
        if not paths:
            return result
        *way, key = rng.choice(paths)
        parent = result
        for each in way:
            parent = parent[each]
        kind = rng.randrange(10)
        if kind == 0:
            parent.pop(key)
        elif kind == 1:
            parent[key] = [parent[key]] * rng.choice((1, 2, 1000))
        elif kind == 2:
            for _ in range(rng.choice((1, 50, 400))):
                parent[key] = {"a": parent[key]} if rng.random() < 0.5 else [parent[key]]
        elif kind == 3 and isinstance(parent, dict):
            parent[rng.choice(TEXTS[:10])] = parent.pop(key)
        elif kind == 4:
            source = result
            for each in rng.choice(paths):
                source = source[each] if isinstance(source, (dict, list)) and _has(source, each) else source
            parent[key] = copy.deepcopy(source)
        else:
            parent[key] = _other(rng, parent[key])
    return result


def _has(value, key):
    return key in value if isinstance(value, dict) else isinstance(key, int) and key < len(value)


def _other(rng, value):
    """A value of the same type, or of any."""
    if isinstance(value, str) and rng.random() < 0.6:
        return rng.choice((*TEXTS, value * 2, value[:-1], value + "x"))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.8:
        return rng.choice((*NUMBERS, *FLOATS, value + 1, value * 2, -value))
    return rng.choice((*TEXTS, *NUMBERS, *FLOATS, *OTHERS))


def json_bytes(rng, value, outside):
    """Returns a mutated JSON value as bytes, rarely with damaged syntax.

    Args:
        rng: `random.Random`.
        value: a JSON value.
        outside: path that takes the place of "OUTSIDE".
    """
    text = json.dumps(mutated_json(rng, value)).replace('"OUTSIDE"', json.dumps(str(outside)))
    data = text.encode("utf-8", "surrogatepass")
    return mutated_bytes(rng, data) if rng.random() < 0.1 else data
