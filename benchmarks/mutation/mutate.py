"""Mutants of the functions of a source file: one small change each, such as `<` in place of `<=`.

Left alone are docstrings, annotations, error messages and what runs when a module is imported: a mutant takes the place of
a function that is already loaded.
"""

import ast
import copy
import dataclasses
import pathlib

_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of a function.

    Args:
        path: of the file, in the repository.
        function: its qualified name in the module, such as `"Beam.step"`.
        line: of the function's first line, decorators included.
        index: of the change within the function.
        before: source of the smallest expression or statement that changes.
        after: source of what takes its place.
    """

    path: str
    function: str
    line: int
    index: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """What stays the same where other parts of the file change."""
        return f"{self.path}:{self.function}: {self.before} -> {self.after}"


def functions_of(tree: ast.Module):
    """Yields the qualified name and the node of each function that is in no other function."""

    def within(body, prefix):
        for node in body:
            if isinstance(node, _FUNCTIONS):
                yield prefix + node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{prefix}{node.name}.")

    yield from within(tree.body, "")


def first_line(function) -> int:
    """The line that the function's code object names as its first."""
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def mutants_of(root: pathlib.Path, path: pathlib.Path) -> list[Mutant]:
    """The mutants of a file.

    Args:
        root: of the repository.
        path: of the file, below it.
    """
    found = []
    name = path.relative_to(root).as_posix()
    for function, node in functions_of(ast.parse(path.read_text(encoding="utf-8"))):
        for index, (old, new) in enumerate(_changes(node)):
            found.append(Mutant(name, function, first_line(node), index, _text(old), _text(new)))
    return found


def mutated(root: pathlib.Path, mutant: Mutant) -> ast.Module:
    """The tree of a file with the change of a mutant."""
    tree = ast.parse((root / mutant.path).read_text(encoding="utf-8"))
    function = next(
        node for name, node in functions_of(tree) if (name, first_line(node)) == (mutant.function, mutant.line)
    )
    old, new = list(_changes(function))[mutant.index]

    class Replace(ast.NodeTransformer):
        def visit(self, node):
            return ast.copy_location(new, node) if node is old else self.generic_visit(node)

    return ast.fix_missing_locations(Replace().visit(tree))


def _text(node) -> str:
    return " ".join(ast.unparse(node).split())[:160]


def _changes(function):
    """Yields pairs of a node and what may take its place."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for statement in body:
        for node in _walked(statement):
            for new in _replacements(node):
                yield node, new


def _walked(node):
    """The nodes below a statement that compute something."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)) or _computes_nothing(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (name == "keywords" and _is_zip(node)):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                yield from _walked(each)


def _computes_nothing(node) -> bool:
    """Whether a call warns, or is for the checker of types."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "TypeVar", "cast")


def _replacements(node):
    """Yields what may take the place of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield _with(node, ops=[_COMPARISONS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS and not _joins_types(node):
        yield _with(node, op=_OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.If) and not isinstance(node.test, (ast.UnaryOp, ast.Compare, ast.BoolOp)):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, ast.Call) and not _is_zip(node):
        for number, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                yield _with(node, keywords=node.keywords[:number] + node.keywords[number + 1 :])
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield _with(node, ifs=[])


def _is_zip(node) -> bool:
    """Whether a call is one of `zip`, whose `strict` only checks."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "zip"


def _joins_types(node) -> bool:
    """Whether `|` joins types, as in `isinstance(x, int | str)`."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return isinstance(node.op, ast.BitOr) and not names.isdisjoint(("int", "str", "dict", "list"))


def _constants(node):
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 if value else 1.0)


def _with(node, **fields):
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
