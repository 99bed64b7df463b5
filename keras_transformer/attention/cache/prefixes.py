"""Several layers in one cache: the names of what one of them keeps begin with its prefix."""

from __future__ import annotations

from keras_transformer.utils.types import Cache


def part(cache: Cache, prefix: str) -> Cache:
    """What is kept under a prefix, by the names behind it."""
    return {name.removeprefix(prefix): tensor for name, tensor in cache.items() if name.startswith(prefix)}


def prefixed(prefix: str, cache: Cache) -> Cache:
    """A layer's own cache, under its prefix."""
    return {f"{prefix}{name}": tensor for name, tensor in cache.items()}


def rest(cache: Cache, *prefixes: str) -> Cache:
    """What is kept under none of these prefixes."""
    return {name: tensor for name, tensor in cache.items() if not name.startswith(prefixes)}
