"""Ranks pages for the search: recipes and guides before the reference, which has every word many times."""

# The first entry whose path begins a page's path applies.
_BOOSTS = {
    "cookbook/fine_tune.md": 6.0,
    "cookbook/": 4.0,
    "which_": 4.0,
    "guide.md": 3.0,
    "shipping.md": 10.0,
    "supported.md": 1.0,
    "mechanisms/": 1.5,
    "positions/": 1.5,
    "models/": 1.5,
    "examples/": 1.0,
    "reference/": 0.4,
    "catalog.md": 0.3,
    "": 1.0,
}


def boost(path):
    """Returns the factor by which the search ranks a page."""
    return next(factor for start, factor in _BOOSTS.items() if path.startswith(start))
