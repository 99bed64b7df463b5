"""Ranks pages for the search: recipes and guides before the reference, which has every word many times."""

# The first entry whose path begins a page's path applies.
_BOOSTS = {
    # Pages of one thing, before journeys that name it in a heading.
    "cookbook/android.md": 75.0,
    "cookbook/chat.md": 30.0,
    "cookbook/fine_tune.md": 6.0,
    "cookbook/gguf.md": 14.0,
    "cookbook/ios.md": 75.0,
    "cookbook/quantize.md": 8.0,
    "cookbook/serve.md": 80.0,
    "cookbook/vision.md": 5.0,
    "cookbook/web.md": 75.0,
    "cookbook/your_own_model.md": 90.0,
    "migrate.md": 8.0,
    "faq.md": 0.6,
    "glossary.md": 0.3,
    "proof.md": 3.0,
    "which_format.md": 80.0,
    "results.md": 0.7,
    "cookbook/": 4.0,
    "which_": 4.0,
    "guide.md": 3.0,
    "shipping.md": 60.0,
    "supported.md": 1.0,
    "mechanisms/": 1.5,
    "positions/": 1.5,
    "models/": 1.5,
    "examples/": 1.0,
    "reference/index.md": 1.0,
    "reference/": 0.4,
    "catalog.md": 0.3,
    "": 1.0,
}


def boost(path):
    """Returns the factor by which the search ranks a page."""
    return next(factor for start, factor in _BOOSTS.items() if path.startswith(start))
