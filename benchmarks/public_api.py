"""Every public name with its signature, read from the syntax of the files: nothing is imported.

python benchmarks/public_api.py         # writes tests/data/public_api.txt; the difference is what a change breaks or adds
python benchmarks/public_api.py --gaps  # prints what is undocumented or untested, and fails if anything is
"""

import argparse
import ast
import functools
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
FILE = ROOT / "tests" / "data" / "public_api.txt"
PACKAGE = "keras_transformer"
HEAD = "# Written by `python benchmarks/public_api.py`; docs/api_stability.md says what a change means.\n"
# Methods that Keras declares, and documents: those of layers, metrics, models and optimizers. Callbacks' begin with "on_".
OF_KERAS = {
    *("build", "call", "compute_mask", "compute_output_shape", "compute_output_spec", "from_config", "get_config"),
    *("apply", "apply_gradients", "update_step", "compute_loss", "train_step", "test_step", "predict_step"),
    *("make_train_function", "make_test_function", "make_predict_function", "get_build_config", "build_from_config"),
    *("quantize", "result", "reset_state", "update_state", "variable_serialization_spec"),
}
Definition = ast.ClassDef | ast.FunctionDef
Found = tuple[str, ast.AST]  # The module, and the node that defines a name in it.


@functools.cache
def path_of(module: str) -> pathlib.Path | None:
    """The file of a module of the package, None for others; the stub where names load on first use."""
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    inside = ROOT.joinpath(*(parts[1:] if parts[1:2] == ["export"] else parts))
    found = (inside.with_suffix(".py"), inside / "__init__.pyi", inside / "__init__.py")
    return next((path for path in found if path.is_file()), None)


@functools.cache
def names_of(module: str) -> dict[str, ast.AST]:
    """Dict of name to what defines or imports it at the top of a module."""
    path, found = path_of(module), {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path else ():
        if isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: node for each in node.names}
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id: node for each in targets if isinstance(each, ast.Name)}
    return found


def resolve(module: str, name: str) -> Found | None:
    """Where a name of a module is defined; None for what other packages define, and for modules."""
    node = names_of(module).get(name)
    if not isinstance(node, ast.ImportFrom):
        return node and (module, node)
    source = node.module or ""
    if node.level:
        path = path_of(module)
        is_package = path is not None and path.stem == "__init__"
        base = module.split(".")[: -node.level + is_package or None]
        source = ".".join([*base, *filter(None, [source])])
    original = next(each.name for each in node.names if (each.asname or each.name) == name)
    return resolve(source, original) if path_of(source) and not path_of(f"{source}.{original}") else None


def public_names(package: str) -> list[str]:
    """The names that a package exports: those of its `__all__`, or of its stub."""
    listed = names_of(package).get("__all__")
    if isinstance(listed, ast.Assign):
        return [ast.literal_eval(each) for each in listed.value.elts]
    return [name for name in names_of(package) if not name.startswith("_")]


def packages() -> list[str]:
    """The public packages and modules of the package."""
    listed = names_of(PACKAGE)
    return sorted(f"{PACKAGE}.{name}" for name in listed if path_of(f"{PACKAGE}.{name}"))


def things() -> Iterator[tuple[str, Found]]:
    """Yields the public name, without that of the package, and the definition, of all that is public."""
    for package in [PACKAGE, *packages()]:
        for name in sorted(public_names(package)):
            if found := resolve(package, name):
                yield f"{package}.{name}".removeprefix(f"{PACKAGE}."), found


def lineage(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yields a class and those of the package that it inherits from, the nearest first."""
    yield module, node
    for base in node.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        found = resolve(module, name.id) if isinstance(name, ast.Name) else None
        if found and isinstance(found[1], ast.ClassDef):
            yield from lineage(*found)


def members(module: str, node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Dict of name to method, of the public ones and the constructor, its own before inherited ones."""
    found: dict[str, ast.FunctionDef] = {}
    for _, cls in lineage(module, node):
        for each in cls.body:
            if isinstance(each, ast.FunctionDef) and (each.name == "__init__" or not each.name.startswith("_")):
                found.setdefault(each.name, each)
    return found


def decorators(node: Definition) -> set[str]:
    return {re.split(r"[(.]", ast.unparse(each).removeprefix("dataclasses."))[0] for each in node.decorator_list}


def fields(module: str, node: ast.ClassDef) -> list[str]:
    """The fields of a data class, a named tuple or a dict with types, as arguments; those that it inherits first."""
    found: dict[str, str] = {}
    for _, cls in reversed([*lineage(module, node)]):
        for each in cls.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
                found[each.target.id] = ast.unparse(each)
    return [text for text in found.values() if "ClassVar" not in text]


def arguments(node: ast.FunctionDef, is_method: bool) -> str:
    """The arguments and the result of a function; without `self` and `cls`."""
    text = ast.unparse(node.args)
    if is_method and "staticmethod" not in decorators(node):
        text = re.sub(r"^(self|cls)(, )?(/, )?", "", text)
    return f"({text})" + (f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else "")


def lines(name: str, module: str, node: ast.AST) -> Iterator[str]:
    """Yields the lines of the snapshot for one public name."""
    if isinstance(node, ast.FunctionDef):
        yield f"{name}{arguments(node, False)}"
    elif isinstance(node, ast.ClassDef):
        methods = members(module, node)
        if "__init__" in methods:
            yield f"{name}{arguments(methods.pop('__init__'), True)}"
        else:
            yield f"{name}({', '.join(fields(module, node))})"
        for method, each in sorted(methods.items()):
            if method in OF_KERAS - {"call"}:
                continue
            is_property = bool(decorators(each) & {"property", "cached_property", "functools"})
            text = arguments(each, True)
            yield f"{name}.{method}{text[text.index(')') + 1 :].replace(' ->', ':') if is_property else text}"
    else:
        keys = [ast.literal_eval(key) for key in getattr(node.value, "keys", ()) if isinstance(key, ast.Constant)]
        yield f"{name} = {{{', '.join(map(repr, keys))}}}" if keys else f"{name}"


def page() -> str:
    """The text of tests/data/public_api.txt."""
    return HEAD + "".join(f"{line}\n" for name, found in things() for line in lines(name, *found))


def undocumented() -> Iterator[str]:
    """Yields what has no docstring, and functions and constructors with an argument that it does not name."""
    for name, (module, node) in things():
        if isinstance(node, ast.FunctionDef):
            yield from _gaps(name, ast.get_docstring(node), node)
        elif isinstance(node, ast.ClassDef):
            classes = [cls for _, cls in lineage(module, node)]
            methods = members(module, node)
            text = "\n".join(filter(None, map(ast.get_docstring, classes)))
            yield from _gaps(name, text, methods.pop("__init__", None))
            for method in methods.keys() - OF_KERAS:
                above = [each for cls in classes for each in cls.body if getattr(each, "name", "") == method]
                if not method.startswith("on_") and not any(map(ast.get_docstring, above)):
                    yield f"{name}.{method}: no docstring"


def _gaps(name: str, text: str | None, function: ast.FunctionDef | None) -> Iterator[str]:
    if not text:
        yield f"{name}: no docstring"
        return
    given = [] if function is None else [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    for each in given:
        if each.arg not in ("self", "cls", "name") and not re.search(rf"\b{re.escape(each.arg)}\b", text):
            yield f"{name}: argument {each.arg}"


def untested() -> list[str]:
    """The public names that no test says, as a name or in a string, nor an example of a docstring, which tests run.

    A class that a function or a method returns is tested with it.
    """
    said: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        said |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    for folder in (PACKAGE, "export"):
        for path in (ROOT / folder).rglob("*.py"):
            for line in re.findall(r"^ *(?:>>>|\.\.\.) .*", path.read_text(encoding="utf-8"), re.MULTILINE):
                said |= set(re.findall(r"\w+", line))
    for line in page().splitlines():
        function, _, result = line.partition(") -> ")
        if function.partition("(")[0].rpartition(".")[2] in said:
            said |= set(re.findall(r"\w+", result))
    return [name for name, _ in things() if name.rpartition(".")[2] not in said]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gaps", action="store_true", help="print what is undocumented or untested")
    if not parser.parse_args().gaps:
        FILE.write_text(page(), encoding="utf-8")
        return 0
    gaps = [f"undocumented: {each}" for each in undocumented()] + [f"untested: {each}" for each in untested()]
    print(*gaps, f"{len(gaps)} gaps in {sum(1 for _ in things())} public names", sep="\n")
    return int(bool(gaps))


if __name__ == "__main__":
    sys.exit(main())
