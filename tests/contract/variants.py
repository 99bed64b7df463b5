"""Parameters of tests that repeat a check for every variant."""

import pytest


def exhaustive_but(values, *kept):
    """The values as parameters of a test, of which all but those kept are exhaustive. A tuple has several parameters."""
    return _marked(values, kept, pytest.mark.exhaustive)


def slow_but(values, *kept):
    """The values as parameters of a test, of which all but those kept are slow: each is quick, all of them are not."""
    return _marked(values, kept, pytest.mark.slow)


def _marked(values, kept, mark):
    values = list(values)
    assert set(kept) <= set(values), "a value that is kept is none of the values"
    rows = [each if isinstance(each, tuple) else (each,) for each in values]
    return [pytest.param(*row, marks=() if each in kept else mark) for row, each in zip(rows, values, strict=True)]
