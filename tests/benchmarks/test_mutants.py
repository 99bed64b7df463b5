"""Mutants of a function, and the tests that notice them."""

import pathlib
import subprocess
import sys

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from mutation.mutate import mutants_of, mutated  # noqa: E402

CODE = '''
"""A module."""

def clamp(x: int, low: int = 0) -> int:
    """Returns x, or `low`."""
    if not isinstance(x, int | float):
        raise TypeError(f"a number above {low + 1}")
    def inner(value):
        return low if value < low else value + 0.5
    return inner(x)


class Sums:
    @staticmethod
    def of(values, start=1):
        values.sort()
        return sum([each * 2 for (each,) in zip(values, strict=True) if each and each is not None], start=True)
'''
TESTS = """
import code_of_test

def test_numbers_below(): assert code_of_test.clamp(-3, 2) == 2
def test_sums(): assert code_of_test.Sums.of([1, 0, 3]) == 9
"""


def test_mutants_change_one_thing_that_is_computed(tmp_path):
    path = tmp_path / "code_of_test.py"
    path.write_text(CODE)
    found = {each.key.partition(": ")[2]: each for each in mutants_of(tmp_path, path)}
    assert list(found) == [
        "not isinstance(x, int | float) -> isinstance(x, int | float)",
        "low if value < low else value + 0.5 -> value + 0.5 if value < low else low",
        "value < low -> value <= low",
        "value + 0.5 -> value - 0.5",
        "0.5 -> 1.0",
        "values.sort() -> pass",
        "sum([each * 2 for each, in zip(values, strict=True) if each and each is not None], start=True) -> "
        "sum([each * 2 for each, in zip(values, strict=True) if each and each is not None])",
        "each * 2 -> each / 2",
        "2 -> 3",
        "for each, in zip(values, strict=True) if each and each is not None -> for each, in zip(values, strict=True)",
        "each and each is not None -> each or each is not None",
        "each is not None -> each is None",
        "True -> False",
    ]
    assert {each.function for each in found.values()} == {"clamp", "Sums.of"}
    names = {}
    exec(compile(mutated(tmp_path, found["value + 0.5 -> value - 0.5"]), str(path), "exec"), names)
    assert (names["clamp"](3), names["clamp"](-3)) == (2.5, 0)


def test_tests_notice_mutants_in_a_fork(tmp_path):
    (tmp_path / "code_of_test.py").write_text(CODE)
    (tmp_path / "test_code.py").write_text(TESTS)
    script = f"""
import pathlib, sys
sys.path[:0] = [{str(BENCHMARKS)!r}, {str(tmp_path)!r}]
import mutants
from mutation.session import Tests
mutants.ROOT = root = pathlib.Path({str(tmp_path)!r})
tests = Tests(root)
def run():
    called = mutants.calls(tests, root / "calls.json")
    for each in mutants.mutants_of(root, root / "code_of_test.py"):
        print(each.key.partition(": ")[2][:30], mutants.outcome(tests, each, called, 5), sep=chr(9))
tests.collect(["test_code.py"], "", run)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    found = dict(line.split("\t") for line in result.stdout.splitlines())
    assert found["value < low -> value <= low"] == "None"
    assert found["value + 0.5 -> value - 0.5"] == "None"
    assert found["low if value < low else value "] == "test_code.py::test_numbers_below"
    assert found["each * 2 -> each / 2"] == "test_code.py::test_sums"
    assert found["values.sort() -> pass"] == "None"
