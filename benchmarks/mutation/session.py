"""Tests that are collected once, and run in forks of the process that holds them.

A fork takes milliseconds where a process that loads TensorFlow takes seconds. Nothing is computed before a fork: TensorFlow
starts its threads with the first operation, and threads do not survive one.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

# Seconds that a fork may take longer than its tests.
_GRACE = 30
# One process, which prints nothing.
_OPTIONS = (
    "-p",
    "no:xdist",
    "-p",
    "no:terminal",
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=",
    "--import-mode=importlib",
)


class Tests:
    """The tests of some folders and files, in the process that has collected them.

    Args:
        root: `pathlib.Path` of the repository.
    """

    def __init__(self, root: pathlib.Path):
        self._root = root
        self._items: dict[str, pytest.Item] = {}
        self._run: Callable[[], None] = lambda: None
        self.reports: list[pytest.TestReport] = []
        self.called = _Called(root)

    def collect(self, tests: Sequence[str], marks: str, run: Callable[[], None]) -> None:
        """Collects tests and calls a function, which may fork.

        Args:
            tests: folders and files, relative to the repository.
            marks: expression of pytest's `-m`.
            run: what is called once they are collected.
        """
        self._run = run
        options = [*_OPTIONS, f"--rootdir={self._root}", "-m", marks, *(str(self._root / each) for each in tests)]
        status = pytest.main(options, plugins=[self])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SystemExit(f"pytest ended with {status!r}")

    def names(self) -> list[str]:
        """The tests' names."""
        return list(self._items)

    def in_fork(self, names: Iterable[str], before: Callable[[], None], seconds: float, traced: bool = False) -> Any:
        """Runs tests in a fork until one fails.

        Args:
            names: of the tests.
            before: what is called first, in the fork.
            seconds: that the tests may take.
            traced: whether all tests run, and the functions are listed that each calls.

        Returns:
            A list of dicts, one a test: its name, whether it passed, its seconds and, traced, the functions; "hangs" where
            the time was over, and the signal's number where the fork ended with one.
        """
        with tempfile.NamedTemporaryFile("r") as written:
            child = os.fork()
            if not child:
                self._child(list(names), before, traced, written.name)
            if not _ended(child, seconds + _GRACE):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "hangs"
            text = written.read()
        return json.loads(text) if text else "ended"

    def _child(self, names, before, traced, written):
        status = 1
        try:
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            before()
            found = list(self._outcomes(names, traced))
            pathlib.Path(written).write_text(json.dumps(found))
            status = 0
        finally:
            os._exit(status)

    def _outcomes(self, names, traced):
        for number, name in enumerate(names):
            item, following = self._items[name], names[number + 1 : number + 2]
            self.reports.clear()
            start = time.monotonic()
            with self.called.of(item) if traced else contextlib.nullcontext(set()) as functions:
                item.config.hook.pytest_runtest_protocol(
                    item=item, nextitem=self._items[following[0]] if following else None
                )
            passed = not any(each.failed for each in self.reports)
            seconds = round(time.monotonic() - start, 3)
            yield {"test": name, "passed": passed, "seconds": seconds, "functions": sorted(functions)}
            if not (passed or traced):
                return

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._run()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        with self.called.by_fixture(fixturedef):
            return (yield)


class _Called:
    """The functions of the repository that tests call, as `"path:name"`.

    What a fixture calls that tests share counts for each of them.
    """

    def __init__(self, root):
        self._prefix, self._codes, self._of_fixtures = f"{root}/", None, {}

    @contextlib.contextmanager
    def of(self, item):
        """Yields a set, to which what is called within is added."""
        functions = set()
        with self._recorded() as codes:
            yield functions
        functions |= self._names(codes)
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            for fixture in fixtures:
                functions |= self._of_fixtures.get(id(fixture), set())

    @contextlib.contextmanager
    def by_fixture(self, fixture):
        if self._codes is None:
            yield
            return
        outer = self._codes
        with self._recorded() as codes:
            yield
        outer |= codes
        self._of_fixtures[id(fixture)] = self._names(codes)

    @contextlib.contextmanager
    def _recorded(self):
        before, codes = self._codes, set()
        self._codes = codes

        def profile(frame, event, argument):
            if event == "call":
                self._codes.add(frame.f_code)

        sys.setprofile(profile)
        threading.setprofile(profile)
        try:
            yield codes
        finally:
            self._codes = before
            if before is None:
                sys.setprofile(None)
                threading.setprofile(None)

    def _names(self, codes):
        of_repository = [each for each in codes if each.co_filename.startswith(self._prefix)]
        return {
            f"{each.co_filename.removeprefix(self._prefix)}:{each.co_qualname.split('.<locals>')[0]}"
            for each in of_repository
        }


def _ended(child, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False
