"""The top of the page of a part: when to use it, when not, and a few lines of code."""

import ast
import builtins
import importlib
import inspect
import re
import tomllib

from markup import PARTS, ROOT, facts, parameters_table, signature

USES = tomllib.loads((ROOT / "docs" / "when_to_use.toml").read_text())
_COUNTED = parameters_table.known()
# How mechanisms and positions without required arguments are used in a layer.
_IN_A_LAYER = """from keras_transformer.attention import MultiHeadAttention

layer = MultiHeadAttention(num_heads=8, key_dim=64, {argument}="{name}")
"""
_CHECKPOINT = """from keras_transformer.checkpoints import from_huggingface
from keras_transformer.export import export

model = from_huggingface("{checkpoint}")  # Or a folder.
export(model, "{name}")
"""
_FROM_SCRATCH = """from keras_transformer import models
from keras_transformer.export import export

model = models.{made}
export(model, "{name}")
"""
_EXPORT = """
from keras_transformer.export import export

export(model, "{name}")
"""


def top(folder, name):
    """Returns when to use a part, when not, and code, as Markdown."""
    use = USES[folder][name]
    rows = facts([("Use it when", use["use"]), ("Not when", use["avoid"])])
    return "\n\n".join([rows, *(f"```python\n{code}```" for code in snippets(folder, name))])


def snippets(folder, name):
    """Returns code for a part: its name in a layer, or its own example; for models a checkpoint, sizes and the export."""
    part = PARTS[folder][name]
    if folder == "models":
        checkpoint = USES[folder][name].get("checkpoint")
        read = [_CHECKPOINT.format(checkpoint=checkpoint, name=name)] if checkpoint else []
        return [*read, _made(name, part)]
    in_attention = folder == "mechanisms" or (folder == "positions" and hasattr(part, "rotate"))
    if in_attention and not required(part):
        argument = folder.removesuffix("s")
        return [_IN_A_LAYER.format(argument=argument, name=name)]
    return [example(part)]


def _made(name, build):
    """Returns code that makes a model from scratch and exports it: of the smallest size, or that of its docstring."""
    sizes = parameters_table.sizes(build)
    if required(build) - {"size", "vocabulary_size"} or (not sizes and required(build)):
        return example(build) + _EXPORT.format(name=name)
    counts = {size: count for size, count in _COUNTED.get(name, {}).get("sizes", {}).items() if count}
    size = min(counts, key=counts.get) if counts else next(iter(sizes), None)
    arguments = [f'"{size}"'] if size else []
    if "vocabulary_size" in required(build):
        arguments.append(f"vocabulary_size={parameters_table.VOCABULARY}")
    return _FROM_SCRATCH.format(made=f"{build.__name__}({', '.join(arguments)})", name=name)


def required(thing):
    """Returns the names of the arguments without defaults."""
    named = [each for each in signature(thing).values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return {each.name for each in named if each.default is each.empty}


def example(thing):
    """Returns the code of the example in a docstring with its imports, and without what only shows a result."""
    lines = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", inspect.getdoc(thing), re.MULTILINE)
    code = "\n".join(re.sub(r"  # .*", "", line) for line in lines)
    statements = ast.parse(code).body
    parts = [ast.get_source_segment(code, each) for each in statements]
    if isinstance(shown := statements[-1], ast.Expr):
        value = shown.value
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Call):
            parts[-1] = f"model = {ast.get_source_segment(code, value.value)}"
        elif any(isinstance(each, ast.Assign) for each in statements):
            parts.pop()
    package = importlib.import_module(".".join(thing.__module__.split(".")[:2]))
    body = [part for part in parts if not part.startswith(("import ", "from "))]
    used = _free("\n".join(body))
    imports = [part for part in parts if part not in body and _imported(part) & used]
    free = _free("\n".join([*imports, *body]))
    imports = [*(["import keras"] if "keras" in free else []), *imports]
    names = sorted(name for name in free - {"keras"} if hasattr(package, name))
    return "\n".join([*imports, f"from {package.__name__} import {', '.join(names)}", "", *body, ""])


def _imported(statement):
    """Returns the names that an import defines."""
    return {alias.asname or alias.name for alias in ast.parse(statement).body[0].names}


def _free(code):
    """Returns the names that code uses without defining or importing them."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {node.id: node for node in nodes if isinstance(node, ast.Name)}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {alias.asname or alias.name for node in nodes if hasattr(node, "names") for alias in node.names}
    return set(names) - stored - imported - set(dir(builtins))
