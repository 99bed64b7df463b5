"""Which tests are quick, slow and exhaustive, by the seconds that they took when they were last timed.

`pytest -m "" --record-times` times all tests and writes `tests/data/test_times.json`: by file and function, the seconds of
one test, and those of tests that take much longer than the others of their function. A test of more than `QUICK` is slow. Of
a function whose tests take more than `TIMED` each, the first is quick; as many as take `BUDGET` together are slow, further
ones are exhaustive, unless some were marked by hand. A test that is new is quick.
"""

import collections
import json
import pathlib
import statistics

import pytest

TIMES = pathlib.Path(__file__).parents[1] / "data" / "test_times.json"
TIMED, QUICK, BUDGET = 0.15, 1.0, 3.0


def mark_by_times(items):
    """Marks those of some items that are slow or exhaustive."""
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    marks = collections.defaultdict(set)
    for item in items:
        marks[_function(item)].add(_mark_of(item))
    count = collections.Counter()
    for item in items:
        file, name = function = _function(item)
        seconds = times.get(file, {})
        _mark(item, seconds.get(item.name, 0.0), 0)
        # Where their marks differ, the tests of the function were chosen by hand.
        _mark(item, seconds.get(name, 0.0), count[function] if len(marks[function]) == 1 else 0)
        count[function] += 1


def _mark(item, seconds, place):
    if place and (place + 1) * seconds > BUDGET:
        item.add_marker(pytest.mark.exhaustive)
    elif seconds > QUICK or (place and seconds):
        item.add_marker(pytest.mark.slow)


def _function(item):
    return item.path.relative_to(TIMES.parents[1]).as_posix(), getattr(item, "originalname", item.name)


def _mark_of(item):
    return next((name for name in ("exhaustive", "slow") if item.get_closest_marker(name)), "")


class Recorder:
    """A plugin that writes the times of all tests that ran, beside those that are known of others."""

    def __init__(self):
        self.seconds = collections.defaultdict(float)

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid.split("@")[0]] += report.duration

    def pytest_sessionfinish(self):
        found = json.loads(TIMES.read_text()) if TIMES.exists() else {}
        for (file, name), seconds in of_functions_and_tests(self.seconds).items():
            found.setdefault(file, {}).pop(name, None)
            if seconds > TIMED:
                found[file][name] = seconds
        found = {file: dict(sorted(each.items())) for file, each in sorted(found.items()) if each}
        TIMES.write_text(json.dumps(found, indent=1) + "\n")


def of_functions_and_tests(seconds):
    """The median by function of the seconds by test, and the seconds of tests that are far above it.

    The first test of a function waits for what the others share: it counts for the median alone.
    """
    tests = collections.defaultdict(dict)
    for test, each in seconds.items():
        file, _, name = test.partition("::")
        path, bracket, parameters = name.partition("[")
        function = path.split("::")[-1]
        tests[file.removeprefix("tests/"), function][f"{function}{bracket}{parameters}"] = each
    found = {}
    for (file, function), of_tests in tests.items():
        median = statistics.median_low(of_tests.values())
        found[file, function] = round(median, 2)
        for name in list(of_tests)[1:]:
            is_far = of_tests[name] > max(QUICK, 3 * median)
            found[file, name] = round(of_tests[name], 2) if is_far else 0.0
    return found
