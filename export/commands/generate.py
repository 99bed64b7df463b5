"""The command `generate`: continues or translates a text with a bundle."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands.console import BACKEND_HELP
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import DEFAULT_BACKEND

if TYPE_CHECKING:
    from keras_transformer.generation import Generator

EXAMPLES = [
    'bundle "ROMEO:"',
    'bundle "Once upon a time" --sampler random --temperature 0.8 --top-p 0.95 --seed 1',
    "bundle - --lines --sampler beam < sentences.en > sentences.de",
]

# The options of each sampler, named after its constructor arguments.
_SAMPLER_OPTIONS = {
    "greedy": (),
    "random": ("temperature", "top_k", "top_p", "min_p"),
    "beam": ("num_beams",),
    "contrastive": ("top_k",),
    "tree_search": ("num_simulations", "temperature", "top_k"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer generate`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle of a language model")
    help = "the text; - reads standard input, without a line break at its end"
    parser.add_argument("prompt", metavar="PROMPT", help=help)
    help = "with -: each line is a prompt and yields one line (line breaks in it become spaces)"
    parser.add_argument("--lines", action="store_true", help=help)
    parser.add_argument("--backend", default=DEFAULT_BACKEND, help=BACKEND_HELP)
    help = "largest number of new tokens (default: 128, or up to the limit of the model)"
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help=help)
    help = "greedy (default), random, beam (shown when complete), contrastive or tree_search"
    parser.add_argument("--sampler", choices=tuple(_SAMPLER_OPTIONS), default="greedy", metavar="NAME", help=help)
    help = "random, tree_search: divides the logits (default: 1)"
    parser.add_argument("--temperature", type=float, metavar="T", help=help)
    help = "random, contrastive (default: 4), tree_search (default: 50): only the K most likely tokens"
    parser.add_argument("--top-k", type=int, metavar="K", help=help)
    help = "random: only the smallest set of most likely tokens whose probabilities sum to P"
    parser.add_argument("--top-p", type=float, metavar="P", help=help)
    help = "random: only tokens of at least P times the probability of the most likely one"
    parser.add_argument("--min-p", type=float, metavar="P", help=help)
    parser.add_argument("--num-beams", type=int, metavar="N", help="beam: number of beams (default: 4)")
    help = "tree_search: number of simulations for each token (default: 50)"
    parser.add_argument("--num-simulations", type=int, metavar="N", help=help)
    help = "above 1: lowers the probability of tokens that occurred already (default: 1)"
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="X", help=help)
    help = "end before this text; repeatable"
    parser.add_argument("--stop", action="append", metavar="TEXT", help=help)
    parser.add_argument("--seed", type=int, metavar="N", help="random: seed of the samples")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="with --lines: prompts in a batch")
    parser.set_defaults(check=lambda arguments: _check_usage(parser, arguments))


def run(arguments: argparse.Namespace) -> int:
    """Prints the continuation of the prompt as it is generated; returns the exit status."""
    from keras_transformer.export.runtime.loading import load
    from keras_transformer.generation import Generator

    sampler = _sampler(arguments)
    prompts = _prompts(arguments)
    model = load(arguments.bundle, arguments.backend)
    if not isinstance(model, Generator):
        raise ExportError(f"'{arguments.bundle}' is not the bundle of a language model: it cannot generate")
    names = ("max_new_tokens", "stop", "seed", "repetition_penalty")
    options = {"sampler": sampler, **{name: getattr(arguments, name) for name in names}}
    if arguments.lines:
        texts: Any = model.generate(prompts, batch_size=arguments.batch_size, **options)
        for text in texts:
            print(" ".join(text.splitlines()))
        return 0
    pieces = model.stream(prompts, **options) if getattr(sampler, "streams", True) else _whole(model, prompts, options)
    for piece in pieces:
        print(piece, end="", flush=True)
    print(flush=True)
    return 0


def _whole(model: "Generator", prompt: str | bytes, options: dict[str, Any]) -> Iterator[Any]:
    yield model.generate(prompt, **options)


def _check_usage(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Reports options without effect as wrong usage."""
    if arguments.lines and arguments.prompt != "-":
        parser.error("--lines reads standard input: PROMPT must be -")
    for name in dict.fromkeys(itertools.chain(*_SAMPLER_OPTIONS.values())):
        if getattr(arguments, name) is not None and name not in _SAMPLER_OPTIONS[arguments.sampler]:
            samplers = " or ".join(key for key, options in _SAMPLER_OPTIONS.items() if name in options)
            parser.error(f"--{name.replace('_', '-')} is for --sampler {samplers}, not {arguments.sampler}")


def _sampler(arguments: argparse.Namespace) -> Any:
    from keras_transformer.generation import SAMPLERS, GenerationError

    given = {name: getattr(arguments, name) for name in _SAMPLER_OPTIONS[arguments.sampler]}
    try:
        return SAMPLERS[arguments.sampler](**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise GenerationError(str(error)) from None


def _prompts(arguments: argparse.Namespace) -> Any:
    """The prompt, or with `--lines` a list of prompts; bytes if they were read from standard input."""
    if arguments.prompt != "-":
        return arguments.prompt
    text = sys.stdin.buffer.read()
    if not arguments.lines:
        return _without_line_break(text)
    lines = [_without_line_break(line) for line in text.splitlines(keepends=True)]
    for number, line in enumerate(lines, 1):
        _check_line(number, line)
    return lines


def _without_line_break(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _check_line(number: int, line: bytes) -> None:
    """Raises the errors of `generate` for a prompt, with the number of the line."""
    from keras_transformer.generation import EmptyPromptError, GenerationError

    if not line:
        raise EmptyPromptError(f"Line {number} is empty.")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GenerationError(f"Line {number} is not UTF-8 text: {error.reason} at {error.start}.") from None
