"""What is deprecated works, and its warning names the version, the new call and the line of the caller."""

import inspect

import pytest

from keras_transformer.utils import deprecation
from keras_transformer.utils.deprecation import deprecated, next_major_version, warn_deprecated


@deprecated("new_sum(values)")
def old_sum(values, start=0):
    """Adds."""
    return sum(values, start)


def test_a_deprecated_function_computes_and_warns_at_its_caller():
    with pytest.warns(
        DeprecationWarning, match=r"old_sum\(\.\.\.\) is deprecated .*: write new_sum\(values\)"
    ) as caught:
        assert old_sum([1, 2], start=4) == 7
    line = inspect.currentframe().f_lineno - 1
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    assert (old_sum.__name__, old_sum.__doc__) == ("old_sum", "Adds.")


def test_a_warning_of_a_function_is_at_the_line_that_calls_it():
    def former():
        warn_deprecated("former()", "latter()")

    with pytest.warns(DeprecationWarning, match="write latter") as caught:
        former()
    line = inspect.currentframe().f_lineno - 1
    assert caught[0].lineno == line


@pytest.mark.parametrize("version, expected", [("0.1.0", "1.0"), ("1.0.0", "2.0"), ("10.2.1", "11.0")])
def test_deprecated_names_go_with_the_next_major_version(monkeypatch, version, expected):
    monkeypatch.setattr(deprecation, "__version__", version)
    assert next_major_version() == expected
