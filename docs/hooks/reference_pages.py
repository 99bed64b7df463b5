"""The reference: a page for each room, with what it exports, but for what has a page of its own; and the command line."""

import ast
import importlib
import inspect
from pathlib import Path

from markup import PAGES, documented

from keras_transformer.export.commands import main as cli

ROOMS = (
    "attention",
    "recurrence",
    "positions",
    "feedforward",
    "blocks",
    "models",
    "tasks",
    "generation",
    "text",
    "vision",
    "audio",
    "retrieval",
    "data",
    "training",
    "checkpoints",
    "plots",
    "catalog",
    "export",
)


def reference_pages():
    """Returns (path to content, navigation)."""
    pages, homes = {}, dict(PAGES)
    for room in ROOMS:
        pages[f"reference/{room}.md"] = _page(room, homes)
    pages["reference/command_line.md"] = _command_line()
    return pages, [{"command line": "reference/command_line.md"}, *({room: f"reference/{room}.md"} for room in ROOMS)]


def _page(room, homes):
    """A page; what it documents is added to `homes`, the page of each class and function that has one already."""
    module = importlib.import_module(f"keras_transformer.{room}")
    things = {name: _thing(module, name) for name in _names(module)}
    elsewhere = [
        f"[`{name}`](../{homes[thing]})" for name, thing in things.items() if _is_code(thing) and thing in homes
    ]
    here = dict.fromkeys(thing for thing in things.values() if _is_code(thing) and thing not in homes)
    homes |= dict.fromkeys(here, f"reference/{room}.md")
    parts = [f"# {module.__name__}", inspect.getdoc(module)]
    if elsewhere:
        parts.append(f"On pages of their own: {', '.join(elsewhere)}.")
    for name, thing in things.items():
        if isinstance(thing, dict):
            parts.append(f"`{name}`: {', '.join(f'`{key}`' for key in thing)}")
    absent = [f"::: {thing}" for thing in things.values() if isinstance(thing, str)]
    return "\n\n".join([*parts, *map(documented, here), *absent])


def _thing(module, name):
    """What a name stands for; where it needs a package that is not installed, its path, which is enough to read it."""
    try:
        return getattr(module, name)
    except ImportError:
        stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
        homes = {
            each.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for each in node.names
        }
        return f"{module.__name__}.{homes[name]}.{name}"


def _command_line():
    """What `--help` says of every command."""
    parts = ["# The command line"]
    for name in cli.COMMANDS:
        parts += [f"## {name}", f"```text\n{_options(name).format_help()}```"]
    return "\n\n".join(parts)


def _options(name):
    """The parser of one command's options."""
    commands = next(action for action in cli.build_parser(name)._actions if action.choices)
    return commands.choices[name]


def _names(module):
    """What it exports; of a file, its public functions."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    return [name for name, thing in vars(module).items() if inspect.isfunction(thing) and not name.startswith("_")]


def _is_code(thing):
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__.startswith("keras_transformer")
