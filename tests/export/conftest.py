"""Worker processes export every small model once; the tests use their results."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent


class Exported:
    """Results and bundles of a worker.

    Args:
        directory: where the worker wrote.
    """

    def __init__(self, directory):
        self.directory = directory
        self.results = json.loads((directory / "results.json").read_text())

    def __getitem__(self, name):
        assert name in self.results, f"the worker ended before {name}:\n{(self.directory / 'log').read_text()[-3000:]}"
        assert "crash" not in self.results[name], self.results[name]["crash"]
        return self.results[name]

    def bundle(self, name):
        """Returns the path of the bundle of a successful case."""
        self[name]
        return self.directory / name


WORKERS = {
    "exported": "worker.py",
    "language": "language_worker.py",
    "tflite": "tflite_worker.py",
    "optimized": "onnx_worker.py",
    "behaviors": "behavior_worker.py",
    "blocks": "gguf_worker.py",
    "learned": "learned_worker.py",
    "targets": "target_worker.py",
    "full_int8": "full_int8_worker.py",
    "hub": "hub_worker.py",
}


def pytest_collection_modifyitems(items):
    """Marks the tests that wait for a worker."""
    for item in items:
        if WORKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def exported(request, tmp_path_factory):
    """Results of the worker, computed once also with several pytest-xdist sessions."""
    return _run_once(request, tmp_path_factory, "exported")


@pytest.fixture(scope="session")
def language(request, tmp_path_factory):
    """Results of the worker that exports language models."""
    return _run_once(request, tmp_path_factory, "language")


@pytest.fixture(scope="session")
def tflite(request, tmp_path_factory):
    """Results of the worker that writes TFLite files with several signatures, and quantized ones."""
    return _run_once(request, tmp_path_factory, "tflite")


@pytest.fixture(scope="session")
def optimized(request, tmp_path_factory):
    """Results of the worker that exports the models of the ONNX graph tests."""
    return _run_once(request, tmp_path_factory, "optimized")


@pytest.fixture(scope="session")
def behaviors(request, tmp_path_factory):
    """Results of the worker that trains a language model and exports it quantized."""
    return _run_once(request, tmp_path_factory, "behaviors")


@pytest.fixture(scope="session")
def blocks(request, tmp_path_factory):
    """Results of the worker that exports models of GGUF files with their blocks."""
    return _run_once(request, tmp_path_factory, "blocks")


@pytest.fixture(scope="session")
def learned(request, tmp_path_factory):
    """Results of the worker that exports models with the integers that were chosen for their weights."""
    return _run_once(request, tmp_path_factory, "learned")


@pytest.fixture(scope="session")
def targets(request, tmp_path_factory):
    """Results of the worker that exports models for accelerators."""
    return _run_once(request, tmp_path_factory, "targets")


@pytest.fixture(scope="session")
def full_int8(request, tmp_path_factory):
    """Results of the worker that exports models in integers throughout."""
    return _run_once(request, tmp_path_factory, "full_int8")


@pytest.fixture(scope="session")
def hub(request, tmp_path_factory):
    """Results of the worker that exports tasks of KerasHub."""
    pytest.importorskip("keras_hub")
    return _run_once(request, tmp_path_factory, "hub")


def _run_once(request, tmp_path_factory, name):
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, done = base / name, base / f"{name}.done"
    try:
        directory.mkdir()
    except FileExistsError:
        while not done.exists():
            time.sleep(0.5)
        return Exported(directory)
    (directory / "results.json").write_text("{}")
    try:
        with open(directory / "log", "w") as log:
            environment = worker_environment(request, name)
            words = [sys.executable, str(HERE / WORKERS[name]), str(directory)]
            subprocess.run(words, stderr=log, stdout=log, env=environment)
    finally:
        done.touch()
    return Exported(directory)


def worker_environment(request, fixture):
    """The environment of a worker for a fixture. It says whether an exhaustive test that waits for it is selected."""
    waiting = [item for item in request.session.items if fixture in item.fixturenames]
    exhaustive = any(item.get_closest_marker("exhaustive") for item in waiting)
    return os.environ | {"KERAS_BACKEND": "tensorflow", "EXHAUSTIVE": str(int(exhaustive))}


@pytest.fixture(scope="module")
def environment_of(request):
    """Function from the name of a fixture of this module to the environment of its worker."""
    return lambda fixture: worker_environment(request, fixture)
