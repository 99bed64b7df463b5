"""Several layers in one cache: the names of what one of them keeps begin with its prefix."""


def part(cache, prefix):
    """What is kept under a prefix, by the names behind it."""
    return {name.removeprefix(prefix): tensor for name, tensor in cache.items() if name.startswith(prefix)}


def prefixed(prefix, cache):
    """A layer's own cache, under its prefix."""
    return {f"{prefix}{name}": tensor for name, tensor in cache.items()}


def rest(cache, *prefixes):
    """What is kept under none of these prefixes."""
    return {name: tensor for name, tensor in cache.items() if not name.startswith(prefixes)}
