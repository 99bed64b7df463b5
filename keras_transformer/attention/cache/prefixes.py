"""One cache for several layers: the tensor names of each layer start with its prefix."""

from __future__ import annotations

from keras_transformer.utils.types import Cache


def select_prefix(cache: Cache, prefix: str) -> Cache:
    """Returns the tensors whose names start with `prefix`, under the names without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in cache.items() if name.startswith(prefix)}


def add_prefix(prefix: str, cache: Cache) -> Cache:
    """Returns the cache of a layer with `prefix` added to the names."""
    return {f"{prefix}{name}": tensor for name, tensor in cache.items()}


def drop_prefixes(cache: Cache, *prefixes: str) -> Cache:
    """Returns the tensors whose names start with none of the prefixes."""
    return {name: tensor for name, tensor in cache.items() if not name.startswith(prefixes)}
