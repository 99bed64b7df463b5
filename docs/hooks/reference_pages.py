"""Generates the reference: a page for each package, without the classes that have a page of their own; the command line."""

import ast
import importlib
import inspect
from pathlib import Path

from keras_transformer.export.commands import main as cli
from keras_transformer.export.data.manifest import SCHEMA_PATH
from markup import PAGES, documented

PACKAGES = (
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
    "diffusion",
    "retrieval",
    "data",
    "training",
    "checkpoints",
    "plots",
    "catalog",
    "export",
)


def reference_pages():
    """Returns a dict of path to content, and the navigation."""
    pages, homes = {}, dict(PAGES)
    for package in PACKAGES:
        pages[f"reference/{package}.md"] = _page(package, homes)
    pages["reference/command_line.md"] = _command_line()
    pages["reference/manifest.schema.json"] = SCHEMA_PATH.read_text(encoding="utf-8")
    entries = [{package: f"reference/{package}.md"} for package in PACKAGES]
    return pages, [{"command line": "reference/command_line.md"}, *entries]


def _page(package, homes):
    """Returns the page of a package and adds the classes and functions that it documents to `homes`, dict to pages."""
    module = importlib.import_module(f"keras_transformer.{package}")
    things = {name: _thing(module, name) for name in _names(module)}
    elsewhere = [
        f"[`{name}`](../{homes[thing]})" for name, thing in things.items() if _is_code(thing) and thing in homes
    ]
    here = dict.fromkeys(thing for thing in things.values() if _is_code(thing) and thing not in homes)
    homes |= dict.fromkeys(here, f"reference/{package}.md")
    parts = [f"# {module.__name__}", inspect.getdoc(module)]
    if elsewhere:
        parts.append(f"Documented on separate pages: {', '.join(elsewhere)}.")
    for name, thing in things.items():
        if isinstance(thing, dict):
            parts.append(f"`{name}`: {', '.join(f'`{key}`' for key in thing)}")
    absent = [f"::: {thing}" for thing in things.values() if isinstance(thing, str)]
    return "\n\n".join([*parts, *map(documented, here), *absent])


def _thing(module, name):
    """Returns the object of a name, or its dotted path if it requires a package that is not installed."""
    try:
        return getattr(module, name)
    except ImportError:
        stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
        homes = {
            each.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for each in node.names
        }
        return f"{module.__name__}.{homes[name]}.{name}"


def _command_line():
    """Returns the page with the `--help` text of every command."""
    parts = ["# The command line"]
    for name in cli.COMMANDS:
        parts += [f"## {name}", f"```text\n{_options(name).format_help()}```"]
    return "\n\n".join(parts)


def _options(name):
    """Returns the argument parser of a command."""
    commands = next(action for action in cli.build_parser(name)._actions if action.choices)
    return commands.choices[name]


def _names(module):
    """Returns the exported names of a package, or the public functions of a module."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    return [name for name, thing in vars(module).items() if inspect.isfunction(thing) and not name.startswith("_")]


def _is_code(thing):
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__.startswith("keras_transformer")
