"""Everything public has a docstring with an example, and types."""

import importlib
import inspect

import pytest

import keras_transformer

PACKAGES = sorted({*keras_transformer.__all__} - {"__version__", "load_model", "backend", "layers", "utils", "catalog"})
# Constructors whose arguments a base class declares.
_IMPLICIT = {"self", "args", "kwargs"}
# Their examples cannot run as doctests without it: litert-lm-builder, Ray.
NEEDS_A_LIBRARY = {"export.write_litertlm", "export.ray_application"}


def public():
    for package in PACKAGES:
        module = importlib.import_module(f"keras_transformer.{package}")
        for name in sorted(getattr(module, "__all__", ())):
            try:
                thing = getattr(module, name)
            except ImportError:  # It needs a package that is not installed.
                continue
            if callable(thing) and not inspect.ismodule(thing):
                yield f"{package}.{name}", thing


THINGS = dict(public()) | {"load_model": keras_transformer.load_model}


def is_error(thing):
    return isinstance(thing, type) and issubclass(thing, BaseException)


@pytest.mark.parametrize("name", THINGS)
def test_it_is_documented_with_an_example(name):
    thing = THINGS[name]
    text = thing.__doc__ or ""
    assert len(text.split()) >= 3
    if not is_error(thing):
        example = "```" if name in NEEDS_A_LIBRARY else ">>>"
        assert example in text, "no example"


@pytest.mark.parametrize("name", THINGS)
def test_its_signature_is_typed(name):
    thing = THINGS[name]
    if is_error(thing):
        return
    functions = [thing.__init__, *_methods(thing)] if isinstance(thing, type) else [thing]
    missing = [f"{function.__qualname__}({argument})" for function in functions for argument in _untyped(function)]
    assert missing == []


def _methods(cls):
    """The public methods that a class of ours defines itself."""
    fields = getattr(cls, "__dataclass_fields__", {})
    own = {name: value for name, value in vars(cls).items() if not name.startswith("_") and name not in fields}
    return [
        value
        for value in own.values()
        if inspect.isfunction(value) and value.__module__.startswith("keras_transformer")
    ]


def _untyped(function):
    if not inspect.isfunction(function) or not function.__module__.startswith("keras_transformer"):
        return
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        if name not in _IMPLICIT and parameter.annotation is parameter.empty:
            yield name
    if function.__name__ != "__init__" and signature.return_annotation is signature.empty:
        yield "return"
