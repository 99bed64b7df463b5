"""Which tests are quick, slow and exhaustive, by the seconds that they took when they were last timed.

`pytest -m "" --record-times` times all tests and writes `tests/data/test_times.json`: by file and function, the seconds of
one test. Of a function whose tests take more than `TIMED` each, the first alone is quick; of one whose tests take more than
`QUICK`, none. As many as take `BUDGET` together are slow, at least one; further ones are exhaustive. A test that is new is
quick. Where some tests of a function are marked and others are not, or otherwise, all stay as they are.
"""

import collections
import json
import pathlib
import statistics

import pytest

TIMES = pathlib.Path(__file__).parents[1] / "data" / "test_times.json"
TIMED, QUICK, BUDGET = 0.15, 0.6, 3.0


def mark_by_times(items):
    """Marks those of some items that are slow or exhaustive."""
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    marks = collections.defaultdict(set)
    for item in items:
        marks[_function(item)].add(_mark_of(item))
    count = collections.Counter()
    for item in items:
        file, name = function = _function(item)
        seconds = times.get(file, {}).get(name, 0.0)
        if seconds and len(marks[function]) == 1:  # Else the tests of the function were chosen by hand.
            _mark(item, seconds, count[function])
        count[function] += 1


def _mark(item, seconds, place):
    if place and (place + 1) * seconds > BUDGET:
        item.add_marker(pytest.mark.exhaustive)
    elif place or seconds > QUICK:
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
        for (file, function), seconds in medians(self.seconds).items():
            found.setdefault(file, {}).pop(function, None)
            if seconds > TIMED:
                found[file][function] = seconds
        found = {file: dict(sorted(each.items())) for file, each in sorted(found.items()) if each}
        TIMES.write_text(json.dumps(found, indent=1) + "\n")


def medians(seconds):
    """The median by file and function of the seconds by test: the first test waits for what the others share."""
    found = collections.defaultdict(list)
    for test, each in seconds.items():
        file, _, name = test.partition("::")
        found[file.removeprefix("tests/"), name.split("[")[0].split("::")[-1]].append(each)
    return {key: round(statistics.median_low(each), 2) for key, each in found.items()}
