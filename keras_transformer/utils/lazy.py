"""Packages whose names load on first use (PEP 562)."""

import importlib


def lazy(package, homes, public):
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: dict of a name to the module in it that has it.
        public: its `__all__`.

    Returns:
        Both functions.

    Example:

    >>> load, names = lazy("keras_transformer.text", {"TextError": "errors"}, ["TextError"])
    >>> load("TextError").__name__, names()
    ('TextError', ['TextError'])
    """

    def load(name):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return load, lambda: sorted(public)
