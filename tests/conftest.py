"""What every test shares. Set before TensorFlow loads: less noise."""

import gc
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import fewer_imports  # noqa: F401  Before Keras.
import keras
import pytest
import tiers

# Fixtures of pytest itself with a wide scope, which cost nothing to make again.
_CHEAP = {"tmp_path_factory", "pytestconfig", "doctest_namespace", "worker_id", "testrun_uid", "selected"}
# The files of the tests so far.
_files = [""]


def pytest_addoption(parser):
    parser.addoption(
        "--record-times", action="store_true", help="write the seconds of tests: see tests/running/tiers.py"
    )


def pytest_configure(config):
    """The processes that tests start, those of pytest-xdist among them, import `running/sitecustomize.py`."""
    paths = [str(pathlib.Path(__file__).with_name("running")), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    if config.getoption("record_times") and not hasattr(config, "workerinput"):
        if config.option.markexpr:
            raise pytest.UsageError('--record-times needs -m "": some tests of a function do not tell what all take')
        config.pluginmanager.register(tiers.Recorder())


def pytest_runtest_logstart(location):
    """Takes what earlier files left out of the garbage collection, which Keras starts whenever a layer loses a variable."""
    if location[0] != _files[-1]:
        _files.append(location[0])
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def results_of_worker():
    """Returns a function that runs a script, which prints a JSON object a line, and returns the objects by their "name"."""

    def run(script, *arguments):
        result = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
        return {found["name"]: found for found in map(json.loads, result.stdout.splitlines())}

    return run


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """A fixture that tests share is the same whichever test asks for it first: it comes before `_seeded`."""
    if fixturedef.scope != "function":
        keras.utils.set_random_seed(0)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Tests that share a fixture run in one process; slow ones come first, so that no process is left alone with them."""
    for item in items:  # Before pytest-xdist looks at the groups.
        group = _shared_fixture(item)
        if group and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    tiers.mark_by_times(items)  # Before pytest looks at `-m`.
    yield
    items.sort(key=_turn)


def _turn(item):
    """Slow tests first, then those that wait for several processes, which have ended by then, then the others."""
    if not any(item.iter_markers("slow")) and not any(item.iter_markers("exhaustive")):
        return 2
    return int(any("+" in str(mark.args[0]) for mark in item.iter_markers("xdist_group")))


def _shared_fixture(item):
    """The names of a session's fixtures that a test uses, or the path of its file if it uses one of the file, or None."""
    fixtures = getattr(item, "_fixtureinfo", None)
    found = {name: each[-1] for name, each in fixtures.name2fixturedefs.items()} if fixtures else {}
    wide = {name: each for name, each in found.items() if each.scope != "function" and name not in _CHEAP}
    of_session = {name: each for name, each in wide.items() if each.scope == "session"}
    # One that is made of another belongs to the group of that.
    roots = sorted(name for name, each in of_session.items() if not of_session.keys() & set(each.argnames))
    return "+".join(roots) or (str(item.path) if wide else None)


@pytest.fixture(scope="module")
def selected(request):
    """Function of a fixture and a parameter of the module: the values that the selected tests with that fixture ask for.

    What prepares all cases of a module at once prepares those alone. Empty where a selected test has no such parameter:
    it looks at the whole.
    """

    def values(fixture, parameter):
        items = [item for item in request.session.items if item.path == request.path and fixture in item.fixturenames]
        params = [item.callspec.params if hasattr(item, "callspec") else {} for item in items]
        return {each[parameter] for each in params} if all(parameter in each for each in params) else set()

    return values
