"""Python of users that defines the layers, models and functions of a `.keras` file."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterable
from types import ModuleType

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.utils.choice import nearest_path
from keras_transformer.utils.errors import library_exceptions, one_line

_OF_OTHER_FILES = ("txt", "md", "json", "keras", "ipynb", "pyc", "toml", "csv", "h5")


def add_import_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--import`."""
    help = "a Python file or module that defines classes of the model: it is run; repeatable"
    parser.add_argument("--import", action="append", default=[], dest="imports", metavar="MODULE", help=help)


def check_imports(names: Iterable[str]) -> None:
    """Checks that files exist, before anything is imported.

    Args:
        names: paths of files that end in `.py`, and names of modules.

    Raises:
        InvalidModelError: there is no such file, or it is no Python.
    """
    for name in names:
        if name.endswith(".py") and not pathlib.Path(name).is_file():
            raise InvalidModelError(f"--import: no such file: '{name}'{nearest_path(name)}")
        if not name.endswith(".py") and not all(part.isidentifier() for part in name.split(".")):
            raise InvalidModelError(
                f"--import takes a file that ends in .py, or the name of a module. Received: '{name}'"
            )
        if not name.endswith(".py") and name.rpartition(".")[2] in _OF_OTHER_FILES:
            raise InvalidModelError(f"--import takes a Python file, whose name ends in .py. Received: '{name}'")


def custom_objects(names: Iterable[str]) -> dict[str, object]:
    """Imports modules, and returns the classes and functions that they define, by their names in a `.keras` file.

    What is registered with Keras is found without it. The rest is found whatever module it was in when the model was saved,
    such as `__main__`.

    Args:
        names: paths of files that end in `.py`, and names of modules.

    Returns:
        Dict of name to class or function.

    Raises:
        InvalidModelError: a module does not exist, or fails.
    """
    found: dict[str, object] = {}
    for name in names:
        module = _imported(name)
        own = {key: value for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
        found |= {key: value for key, value in own.items() if callable(value)}
    return found


def _imported(name: str) -> ModuleType:
    """The module, which can import what is beside it; a name is looked for in the current folder too."""
    folder = str(pathlib.Path(name).parent) if name.endswith(".py") else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return _of_file(pathlib.Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except library_exceptions(ImportError) as error:
        raise InvalidModelError(f"--import '{name}' failed: {type(error).__name__}: {one_line(error)}") from error


def _of_file(path: pathlib.Path) -> ModuleType:
    """The module of a file, under the name that `import` would give it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"'{path}' is no Python file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
