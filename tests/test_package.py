"""The package as a whole: it is light to import, imports point down only, and there is no import circle."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformer

ROOT = Path(keras_transformer.__file__).parent


def test_import_loads_neither_tensorflow_nor_keras():
    code = "import sys, keras_transformer; print(sorted({'tensorflow', 'keras', 'numpy', 'jax'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_package_loads_and_an_unknown_one_does_not():
    for name in keras_transformer.__all__:
        assert getattr(keras_transformer, name) is not None
    with pytest.raises(AttributeError, match="no_such"):
        _ = keras_transformer.no_such


# Inside the package where it is installed, beside it in a checkout.
EXPORT = Path(keras_transformer.export.__file__).parent


def modules(root, package):
    """Dict of the full name of each module of a package to its path."""
    parts = {path: path.relative_to(root).with_suffix("").parts for path in sorted(root.rglob("*.py"))}
    return {".".join((package, *(part for part in each if part != "__init__"))): path for path, each in parts.items()}


MODULES = modules(ROOT, "keras_transformer") | modules(EXPORT, "keras_transformer.export")


def imports(path):
    """Yields the modules that a file imports, in functions too; for type checkers alone does not count."""
    unread = [ast.parse(path.read_text())]
    while unread:
        node = unread.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            unread += node.orelse
            continue
        unread += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{name.name}" for name in node.names]
            yield from dict.fromkeys(name if name in MODULES else node.module for name in full)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


# From the ground up: a package may use those before it, and itself.
ORDER = [
    "version",
    "utils",
    "text",
    "backend",
    "layers",
    "positions",
    "attention",
    "feedforward",
    "recurrence",
    "blocks",
    "vision",
    "audio",
    "diffusion",
    "models",
    "generation",
    "tasks",
    "data",
    "plots",
    "quantization",
    "training",
    "checkpoints",
    "planning",
    "retrieval",
    "catalog",
]
# These run on every backend of Keras: they name none of them.
ON_EVERY_BACKEND = {*ORDER[: ORDER.index("tasks") + 1]} - {"utils", "backend", "text"}


@pytest.mark.parametrize("package", ORDER)
def test_arrows_point_down_only(package):
    allowed = {*ORDER[: ORDER.index(package) + 1]}
    for path in [*(ROOT / package).rglob("*.py"), *ROOT.glob(f"{package}.py")]:
        for module in imports(path):
            if module.startswith("keras_transformer."):
                assert module.split(".")[1] in allowed, f"{path.name} imports {module}"
            if package in ON_EVERY_BACKEND:
                assert module.split(".")[0] not in ("tensorflow", "torch", "jax"), f"{path.name} imports {module}"


# The same of the export, by folders and modules.
EXPORT_ORDER = [
    "remedies",
    "errors",
    "data",
    "graph",
    "operations",
    "bundle",
    "runtime",
    "quantization",
    "format",
    "onnx",
    "saved_model",
    "tflite",
    "openvino",
    "coreml",
    "formats",
    "loading",
    "spec",
    "reporting",
    "verification",
    "targets",
    "options",
    "request",
    "writing",
    "deprecated",
    "api",
    "compression",
    "training",
    "serving",
    "engines",
    "text",
    "viewing",
    "commands",
]
EXPORT_EXCEPTIONS: set[tuple[str, str]] = set()


def part_of(module):
    """The folder or module of the export in which a module is; None for what is not in the export."""
    _, export, *names = *module.split("."), ""
    if export != "export" or not names[0]:
        return None
    return names[0]


@pytest.mark.parametrize("part", EXPORT_ORDER)
def test_arrows_in_export_point_down_only(part):
    allowed = {None, *EXPORT_ORDER[: EXPORT_ORDER.index(part) + 1]}
    for name, path in MODULES.items():
        found = {part_of(module) for module in imports(path)} if part_of(name) == part else set()
        above = {each for each in found - allowed if (path.name, each) not in EXPORT_EXCEPTIONS}
        assert not above, f"{name} imports of {', '.join(above)}"


def test_every_part_of_export_has_a_place_in_the_order():
    assert {part_of(name) for name in MODULES} - {None} == set(EXPORT_ORDER)


def find_circle(arrows):
    """Returns the modules of one circle of a dict of module to imported modules, or []."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        path.append(module)
        circle = next(filter(None, map(visit, arrows.get(module, ()))), [])
        path.pop()
        done.add(module)
        return circle

    return next(filter(None, map(visit, arrows)), [])


def test_find_circle():
    assert find_circle({"a": ["b", "c"], "b": ["c"], "c": []}) == []
    assert sorted(find_circle({"a": ["b"], "b": ["c"], "c": ["d", "b"], "d": []})) == ["b", "c"]


def test_there_is_no_import_circle():
    """An import of a name that a package's `__init__.py` takes from its modules is an import of those modules."""
    arrows = {name: [module for module in imports(path) if module in MODULES] for name, path in MODULES.items()}
    assert sum(map(len, arrows.values())) > 500
    assert find_circle(arrows) == []


# The number of `Any` in each package. It may shrink, and then the number here with it; it does not grow.
NUM_ANY = {
    "attention": 35,
    "audio": 2,
    "backend": 36,
    "blocks": 11,
    "catalog": 1,
    "checkpoints": 51,
    "data": 12,
    "feedforward": 1,
    "generation": 54,
    "models": 16,
    "planning": 5,
    "plots": 5,
    "positions": 3,
    "quantization": 5,
    "recurrence": 3,
    "retrieval": 6,
    "tasks": 22,
    "text": 48,
    "training": 38,
    "utils": 67,
    "vision": 24,
    "export.bundle": 4,
    "export.commands": 15,
    "export.compression": 6,
    "export.coreml": 20,
    "export.data": 14,
    "export.deprecated": 1,
    "export.engines": 43,
    "export.graph": 20,
    "export.loading": 21,
    "export.onnx": 59,
    "export.openvino": 2,
    "export.operations": 24,
    "export.options": 4,
    "export.quantization": 4,
    "export.reporting": 5,
    "export.request": 1,
    "export.runtime": 7,
    "export.saved_model": 5,
    "export.serving": 57,
    "export.spec": 37,
    "export.targets": 17,
    "export.text": 29,
    "export.tflite": 45,
    "export.training": 5,
    "export.verification": 48,
    "export.viewing": 1,
    "export.writing": 5,
}


def test_no_package_says_any_more_often_than_before():
    """A real type says what a reader may do with a value: a protocol, `keras.Model`, a `TypedDict`, `object`."""
    found: dict[str, int] = {}
    for module, path in MODULES.items():
        parts = module.split(".")[1:]
        package = ".".join(parts[:2] if parts[:1] == ["export"] else parts[:1])
        names = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name))
        found[package] = found.get(package, 0) + sum(node.id == "Any" for node in names)
    grown = {name: count for name, count in found.items() if count > NUM_ANY.get(name, 0)}
    assert not grown, f"more than { {name: NUM_ANY.get(name, 0) for name in grown} }: {grown}"


def test_library_does_not_import_export():
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "export"):  # Where it is installed.
            continue
        assert not [module for module in imports(path) if module.startswith("keras_transformer.export")], path.name


def test_export_is_found_from_a_checkout():
    """Python started in the repository finds the package there before the installed one; `export` stands beside it."""
    code = "import keras_transformer.export as package; print(sorted(package.__all__)[:2])"
    checkout = Path(__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['Access', 'ArraySpec']"
