"""Running an example inside the process of the tests."""

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def _module(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _run(name, *arguments):
    printed = io.StringIO()
    with mock.patch.object(sys, "argv", [name, *map(str, arguments)]), contextlib.redirect_stdout(printed):
        _module(name).main()
    return printed.getvalue()


@pytest.fixture(scope="session")
def example_module():
    """Function from the name of an example to its module."""
    return _module


@pytest.fixture(scope="session")
def run_example():
    """Function that does what `python examples/NAME.py ARGUMENTS` does, and returns what it prints."""
    return _run


TEXT = """The cat sat on the mat, and 12 dogs didn't. "It's a naïve café," said the owl; we'll see… 它在垫子上。 😀 1,234.5!
Two owls read 34 books in the café on the hill. They've read them, haven't they?  Yes:\tall of them.
"""


@pytest.fixture(scope="session")
def deploy_bundles(tmp_path_factory):
    """The folder that `examples/deploy/make_bundles.py` writes: a tiny classifier and decoder, which all recipes run."""
    folder = tmp_path_factory.mktemp("deploy")
    (folder / "text.txt").write_text(3 * TEXT, encoding="utf-8")
    options = "--epochs 1 --steps 80 --layers 1 --width 32 --vocabulary 330 --prompts 8 --learning-rate 0.01"
    command = [sys.executable, FOLDER / "deploy" / "make_bundles.py", "--out", folder, "--text", folder / "text.txt"]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.run([*command, *options.split()], capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder
