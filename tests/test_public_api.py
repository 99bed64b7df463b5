"""Everything public has a docstring with an example, and types."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import keras_transformer

PACKAGES = sorted({*keras_transformer.__all__} - {"__version__", "load_model", "backend", "layers", "utils", "catalog"})
# Constructors whose arguments a base class declares.
_IMPLICIT = {"self", "args", "kwargs"}
# Their examples cannot run as doctests without it: litert-lm-builder, MediaPipe, onnxruntime-extensions, Ray, or a
# server, which runs until it is interrupted.
NEEDS_A_LIBRARY = {
    *("export.write_litertlm", "export.write_mediapipe", "export.write_text_onnx"),
    *("export.ray_application", "export.serve_with_ray", "export.http_application", "export.run_server"),
}


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


ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", ["keras_transformer", "export", "examples"])
def test_everything_public_is_typed(folder):
    """Every public function and method of the files, exported or not, and every constructor."""
    missing, seen = [], 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name, function, is_method in functions(ast.parse(path.read_text(encoding="utf-8")).body):
            seen += 1
            arguments = ", ".join(unannotated(function, is_method))
            if arguments:
                missing.append(f"{path.relative_to(ROOT)}:{function.lineno} {name}: {arguments}")
    assert seen > 100
    assert missing == []


def functions(body, prefix=""):
    """Yields name, node and whether it is a method, of the public functions of a module and of its classes."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not node.name.startswith("_") or node.name in ("__init__", "__call__"):
                yield prefix + node.name, node, bool(prefix)
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from functions([*node.body, *getattr(node, "orelse", [])], prefix)


def unannotated(function, is_method):
    """Yields the parameters of a function without a type, and "return"."""
    parameters = function.args
    named = [*parameters.posonlyargs, *parameters.args]
    if is_method and not any(getattr(each, "id", None) == "staticmethod" for each in function.decorator_list):
        named = named[1:]
    named += [*parameters.kwonlyargs, *filter(None, (parameters.vararg, parameters.kwarg))]
    yield from (each.arg for each in named if each.annotation is None)
    if function.returns is None:
        yield "return"


def test_functions_without_types_are_found():
    code = """
def whole(a: int, *, b: str = "") -> None: ...
def part(a, *rest, **options: int): ...
class _Hidden:
    def __init__(self, x) -> None: ...
    def _private(self, x): ...
    @staticmethod
    def free(x) -> int: ...
"""
    found = {name: [*unannotated(node, is_method)] for name, node, is_method in functions(ast.parse(code).body)}
    assert found == {
        "whole": [],
        "part": ["a", "rest", "return"],
        "_Hidden.__init__": ["x"],
        "_Hidden.free": ["x"],
    }
