"""The options of samplers on the command line."""

from __future__ import annotations

import argparse
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import ExportError, MissingLibraryError

if TYPE_CHECKING:
    from keras_transformer.generation import JsonSchema, Regex

# The options of each sampler, named after its constructor arguments.
OPTIONS = {
    "greedy": (),
    "random": ("temperature", "top_k", "top_p", "min_p"),
    "beam": ("num_beams",),
    "contrastive": ("top_k",),
    "tree_search": ("num_simulations", "temperature", "top_k"),
}
# The type and the description of each.
_WORDS: dict[str, tuple[Callable[[str], object], str, str]] = {
    "temperature": (float, "T", "divides the logits (default: 1)"),
    "top_k": (int, "K", "only the K most likely tokens (default for contrastive: 4, for tree_search: 50)"),
    "top_p": (float, "P", "only the smallest set of most likely tokens whose probabilities sum to P"),
    "min_p": (float, "P", "only tokens of at least P times the probability of the most likely one"),
    "num_beams": (int, "N", "number of beams (default: 4)"),
    "num_simulations": (int, "N", "number of simulations for each token (default: 50)"),
}


def add_arguments(parser: argparse.ArgumentParser, samplers: Sequence[str] = tuple(OPTIONS)) -> None:
    """Adds `--sampler`, the options of some samplers, and those of all generation."""
    help = "largest number of new tokens (default: 128, or up to the limit of the model)"
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help=help)
    texts = {"greedy": "greedy (default)", "beam": "beam (shown when complete)"}
    help = ", ".join(texts.get(each, each) for each in samplers)
    parser.add_argument("--sampler", choices=tuple(samplers), default="greedy", metavar="NAME", help=help)
    for name in _names(samplers):
        kind, letter, words = _WORDS[name]
        users = ", ".join(each for each in samplers if name in OPTIONS[each])
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=letter, help=f"{users}: {words}")
    help = "above 1: lowers the probability of tokens that occurred already (default: 1)"
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="X", help=help)
    help = "end before this text; repeatable"
    parser.add_argument("--stop", action="append", metavar="TEXT", help=help)
    grammars = parser.add_mutually_exclusive_group()
    grammars.add_argument("--json-schema", metavar="FILE", help="the text is JSON of the schema in this file")
    grammars.add_argument("--regex", metavar="PATTERN", help="the text matches this regular expression as a whole")
    parser.add_argument("--seed", type=int, metavar="N", help="random: seed of the samples")


def check_usage(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, samplers: Sequence[str] = tuple(OPTIONS)
) -> None:
    """Reports an option that the sampler does not have as wrong usage. `samplers` are those of the command."""
    given = [name for name in _names(tuple(OPTIONS)) if getattr(arguments, name, None) is not None]
    for name in given:
        if name not in OPTIONS[arguments.sampler]:
            samplers = " or ".join(key for key, options in OPTIONS.items() if key in samplers and name in options)
            parser.error(f"--{name.replace('_', '-')} is for --sampler {samplers}, not {arguments.sampler}")


def generation_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `Generator.generate`.

    Raises:
        GenerationError: the value of an option is out of range, or a grammar is invalid.
        ExportError: the file of a schema cannot be read.
        MissingLibraryError: a grammar needs a library that is not installed.
    """
    from keras_transformer.generation import SAMPLERS, GenerationError

    given = {name: getattr(arguments, name) for name in OPTIONS[arguments.sampler]}
    try:
        sampler = SAMPLERS[arguments.sampler](**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise GenerationError(str(error)) from None
    names = ("max_new_tokens", "stop", "seed", "repetition_penalty")
    return {"sampler": sampler, "grammar": _grammar(arguments), **{name: getattr(arguments, name) for name in names}}


def _grammar(arguments: argparse.Namespace) -> Regex | JsonSchema | None:
    """The grammar of `--json-schema` or `--regex`, or None."""
    from keras_transformer.generation import JsonSchema, Regex

    if arguments.regex is None and arguments.json_schema is None:
        return None
    try:
        if arguments.regex is not None:
            return Regex(arguments.regex)
        return JsonSchema(_read(arguments.json_schema))
    except ImportError as error:
        raise MissingLibraryError("a grammar", "llguidance", "grammar") from error


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _names(samplers: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(itertools.chain(*(OPTIONS[each] for each in samplers))))
