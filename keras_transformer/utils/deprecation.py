"""How a public name goes: it works and warns until the next major version."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from keras_transformer.version import __version__

_P = ParamSpec("_P")
_R = TypeVar("_R")


def next_major_version() -> str:
    """The version in which deprecated names go, such as "2.0"."""
    return f"{int(__version__.split('.')[0]) + 1}.0"


def warn_deprecated(former: str, call: str, level: int = 2) -> None:
    """Tells how a call is written now.

    Args:
        former: str. What was written.
        call: str. What is to be written.
        level: int. How many calls further up that is.

    Example:

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_deprecated("shrink(model)", "compress(model)")
    >>> print(caught[0].message)
    shrink(model) is deprecated and goes in version 2.0: write compress(model)
    """
    warnings.warn(
        f"{former} is deprecated and goes in version {next_major_version()}: write {call}",
        DeprecationWarning,
        stacklevel=level + 1,
    )


def deprecated(call: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a function warn, with the name of its caller's file and line, and go on as before.

    Args:
        call: str. What is to be written in place of a call of the function.

    Returns:
        A decorator.

    Example:

    >>> @deprecated("compress(model)")
    ... def shrink(model: str) -> str:
    ...     return model[:2]
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     result = shrink("model")
    >>> result, caught[0].category.__name__
    ('mo', 'DeprecationWarning')
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warn_deprecated(f"{function.__name__}(...)", call, 2)
            return function(*args, **kwargs)

        return called

    return decorate
