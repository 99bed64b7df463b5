"""Registers the serializable classes of this package with Keras, without importing them.

`keras.models.load_model` finds a custom class only if it is registered. Importing `keras_transformer` loads none of its
packages, so here each class is registered by a placeholder that imports its module on first use. The names come from the
source files: everything decorated with `@serializable`. If Keras is not imported yet, this waits until it is.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from keras_transformer.utils.types import JsonObject

PACKAGE = "keras_transformer"
_ROOT = Path(__file__).resolve().parents[1]
_DECORATED = re.compile(r"^@serializable\n(?:@.*\n)*(class|def) (\w+)", re.MULTILINE)


def register_with_keras() -> None:
    """Registers all serializable objects: now if Keras is imported, else right after its import."""
    if hasattr(sys.modules.get("keras"), "saving"):
        register_placeholders()
    elif not any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasFinder())


def register_placeholders() -> None:
    """Registers a placeholder for every serializable object that is not registered yet; Keras must be imported."""
    import keras

    registered = keras.saving.get_custom_objects()
    for module, kind, name in serializable_objects():
        key = f"{PACKAGE}>{name}"
        if key in registered:
            continue
        if kind == "class":
            registered[key] = _class_placeholder(module, name)
        else:  # By the decorator, so that a model with the placeholder is saved under the same name.
            keras.saving.register_keras_serializable(PACKAGE)(_function_placeholder(module, name))


def serializable_objects() -> Iterator[tuple[str, str, str]]:
    """Yields the module, the kind ("class" or "def") and the name of everything decorated with `@serializable`."""
    for path in sorted(_ROOT.rglob("*.py")):
        parts = path.relative_to(_ROOT).with_suffix("").parts
        for kind, name in _DECORATED.findall(path.read_text(encoding="utf-8")):
            yield ".".join((PACKAGE, *parts)), kind, name


def _class_placeholder(module: str, name: str) -> type:
    """Returns a class whose construction, from arguments or from a config, imports and constructs the real one."""

    def construct(cls: type, *args: object, **kwargs: object) -> Any:
        return _imported(module, name)(*args, **kwargs)

    def from_config(cls: type, config: JsonObject, *args: object, **kwargs: object) -> Any:
        return _imported(module, name).from_config(config, *args, **kwargs)

    members = {"__module__": module, "__new__": construct, "from_config": classmethod(from_config)}
    return type(name, (), members)


def _function_placeholder(module: str, name: str) -> Callable[..., Any]:
    """Returns a function that imports and calls the real one."""

    def placeholder(*args: object, **kwargs: object) -> Any:
        return _imported(module, name)(*args, **kwargs)

    placeholder.__name__ = placeholder.__qualname__ = name
    placeholder.__module__ = module
    return placeholder


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class _KerasFinder(importlib.abc.MetaPathFinder):
    """Finds Keras where it is, with a loader that calls `register_placeholders` after the import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "keras":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _RegisteringLoader(spec.loader, self)
                return spec
        return None


class _RegisteringLoader(importlib.abc.Loader):
    """The loader of Keras, which registers the placeholders after the import and then steps aside."""

    def __init__(self, loader: importlib.abc.Loader, finder: _KerasFinder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        register_placeholders()
