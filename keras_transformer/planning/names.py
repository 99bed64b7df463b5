"""The models that a plan can be made for, by name and size: read from the source of `models`, without importing it.

Importing the models loads TensorFlow, for seconds; a misspelled name is answered at once.
"""

from __future__ import annotations

import ast
import functools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from keras_transformer.planning.errors import PlanningError
from keras_transformer.utils.choice import suggestion
from keras_transformer.utils.types import Path

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_MODELS = "keras_transformer.models"


def check_config(config: Path) -> None:
    """Checks that a path is a JSON object, or a folder with a `config.json`, or else that a name is "model:size".

    Args:
        config: str or path, as of `planning.build`.

    Raises:
        PlanningError: it is none of these; the message suggests the nearest name.

    Example:

    >>> check_config("gpt2:small")
    >>> check_config("gpt2:smal")
    Traceback (most recent call last):
    keras_transformer.planning.errors.PlanningError: gpt2 has no size 'smal'; valid: small, medium, large, xl; \
did you mean 'small'?
    """
    path = pathlib.Path(config)
    if path.exists():
        read_config(path)
    elif path.suffix == ".json" or len(path.parts) > 1:
        raise PlanningError(f"no such file or folder: '{path}'")
    else:
        _check_model(str(config))


def read_config(path: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """Returns the path and the values of a `config.json`, or of that of a folder.

    Raises:
        PlanningError: it cannot be read.
    """
    path = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanningError(f"'{path}' is no config.json: {str(error)[:80]}") from None
    if not isinstance(values, dict):
        raise PlanningError(f"'{path}' is no config.json: it is not an object")
    return path, values


def _check_model(name: str) -> None:
    model, colon, size = name.partition(":")
    known = tuple(_functions())
    if not colon and model not in known:
        near = (f"{each}:{other}" for each in known if model.startswith(each) for other in size_names(each) or ())
        advice = suggestion(model, near) or suggestion(model, known)
        raise PlanningError(f"'{name}' is neither a config.json nor MODEL:SIZE, such as llama:3-8B{advice}")
    if model not in known:
        advice = suggestion(model, known) or "; keras-transformer catalog models lists them"
        raise PlanningError(f"unknown model {model!r}{advice}")
    sizes = size_names(model)
    if sizes is not None and size not in sizes:
        missing = f"has no size {size!r}" if colon else "needs a size, as MODEL:SIZE"
        raise PlanningError(f"{model} {missing}; valid: {', '.join(sizes)}{suggestion(size, sizes)}")


def model_names() -> tuple[str, ...]:
    """Returns the keys of `models.MODELS`."""
    return tuple(_functions())


def size_names(model: str) -> tuple[str, ...] | None:
    """Returns the names of the published sizes of a model; None if they cannot be read from its source.

    Args:
        model: a key of `models.MODELS`.

    Example:

    >>> size_names("vit")[:3]
    ('Ti', 'S', 'B')
    """
    imports, _ = _module(f"{_MODELS}.__init__")
    function = _functions()[model]
    return _sizes_in(imports[function][0], imports[function][1])


@functools.cache
def _functions() -> dict[str, str]:
    """`models.MODELS`: dict of name to the name of the function."""
    _, definitions = _module(f"{_MODELS}.__init__")
    table = definitions["MODELS"]
    return {ast.literal_eval(key): ast.unparse(value) for key, value in zip(table.keys, table.values, strict=True)}


def _sizes_in(module: str, function: str) -> tuple[str, ...] | None:
    """The keys of the only table of sizes that a function of a module uses, itself or through others of the module."""
    imports, definitions = _module(module)
    pending, seen, tables = [function], set(), set()
    while pending:
        name = pending.pop()
        if name in seen or name not in definitions:
            continue
        seen.add(name)
        used = {each.id for each in ast.walk(definitions[name]) if isinstance(each, ast.Name)}
        tables |= {each for each in used if each.endswith("SIZES") and not each.startswith("_")}
        pending += used - tables
    return _keys(module, tables.pop()) if len(tables) == 1 else None


def _keys(module: str, table: str) -> tuple[str, ...] | None:
    """The keys of a dict of a module, or of one that it imports."""
    imports, definitions = _module(module)
    if table in imports:
        return _keys(*imports[table])
    value = definitions.get(table)
    keys: Sequence[ast.expr | None]
    if isinstance(value, ast.Dict):
        keys = value.keys
    elif isinstance(value, ast.DictComp) and isinstance(value.generators[0].iter, ast.Tuple):
        keys = value.generators[0].iter.elts
    else:
        return None
    names = tuple(each.value for each in keys if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return names if len(names) == len(keys) else None


@functools.cache
def _module(name: str) -> tuple[dict[str, tuple[str, str]], dict[str, Any]]:
    """The imports of a module, as name to (module, name there), and its functions, classes and assigned values."""
    path = _ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
    imports: dict[str, tuple[str, str]] = {}
    definitions: dict[str, object] = {}
    for each in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(each, ast.ImportFrom):
            imports |= {alias.asname or alias.name: (each.module or "", alias.name) for alias in each.names}
        elif isinstance(each, ast.FunctionDef | ast.ClassDef):
            definitions[each.name] = each
        else:
            definitions |= dict(_assigned(each))
    return imports, definitions


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    value = getattr(statement, "value", None)
    return ((each.id, value) for each in targets if isinstance(each, ast.Name) and value is not None)
