"""Running an example inside the process of the tests."""

import contextlib
import importlib.util
import io
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
