"""Parameters of tests that repeat a check for every variant."""

import pytest


def exhaustive_but(values, *kept):
    """The values as parameters of a test, of which all but those kept are exhaustive. A tuple has several parameters."""
    values = list(values)
    assert set(kept) <= set(values), "a value that is kept is none of the values"
    rows = [each if isinstance(each, tuple) else (each,) for each in values]
    marks = [() if each in kept else pytest.mark.exhaustive for each in values]
    return [pytest.param(*row, marks=mark) for row, mark in zip(rows, marks, strict=True)]
