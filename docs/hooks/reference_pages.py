"""Generates the reference: a page for each package, without the classes that have a page of their own; the command line."""

import ast
import importlib
import inspect
from pathlib import Path

from keras_transformer import catalog as catalog
from keras_transformer.export.commands import main as cli
from keras_transformer.export.data.manifest import SCHEMA_PATH
from markup import PAGES, documented, path_of, table

PACKAGES = (
    "export",
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
)

# The names that people use, by what for; the rest of the reference follows.
LEADING = {
    "Export and run": {"export": ("export", "load", "Report", "ExportOptions", "quantize", "compress")},
    "Make it small": {"export": ("Int8", "FullInt8", "WeightInt4", "Evaluation", "sensitivity")},
    "Read what others trained": {
        "checkpoints": ("from_huggingface", "from_gguf", "to_huggingface", "to_gguf"),
        "export": ("register_lowering", "export_tokenizer"),
    },
    "Build": {
        "models": ("Size", "Encoder", "Decoder", "ViT"),
        "tasks": ("SequenceClassifier", "ImageClassifier", "LanguageModel"),
        "attention": ("MultiHeadAttention",),
        "blocks": ("EncoderBlock",),
    },
    "Train": {"training": ("add_lora", "MaskedCrossentropy"), "text": ("WordPiece", "BytePair")},
}
_INTRODUCTION = """The thirty names that most programs need, and the first sentence about each; then
[every package](export.md), and [the command line](command_line.md). `from keras_transformer.PACKAGE import NAME`."""


def reference_pages():
    """Returns a dict of path to content, and the navigation."""
    pages, homes = {}, dict(PAGES)
    for package in PACKAGES:
        pages[f"reference/{package}.md"] = _page(package, homes)
    pages["reference/command_line.md"] = _command_line()
    pages["reference/manifest.schema.json"] = SCHEMA_PATH.read_text(encoding="utf-8")
    pages["reference/index.md"] = _index(homes)
    entries = [{package: f"reference/{package}.md"} for package in PACKAGES]
    return pages, ["reference/index.md", {"command line": "reference/command_line.md"}, *entries]


def _index(homes):
    """Returns the page of the names that people use, with links to where each is documented."""
    parts = ["# API reference: the names people use", _INTRODUCTION]
    for title, packages in LEADING.items():
        rows = []
        for package, names in packages.items():
            module = importlib.import_module(f"keras_transformer.{package}")
            for name in names:
                thing = getattr(module, name)
                place = f"../{homes[thing]}#{path_of(thing)}"
                rows.append({"name": f"[`{name}`]({place})", "of": f"`{package}`", "what": catalog.summary(thing)})
        parts += [f"## {title}", table(rows)]
    return "\n\n".join(parts)


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
        first = [name for packages in LEADING.values() for name in packages.get(_package_of(module), ())]
        return [*first, *sorted(set(module.__all__) - set(first), key=str.lower)]
    return [name for name, thing in vars(module).items() if inspect.isfunction(thing) and not name.startswith("_")]


def _package_of(module):
    return module.__name__.removeprefix("keras_transformer.")


def _is_code(thing):
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__.startswith("keras_transformer")
