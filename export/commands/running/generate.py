"""The command `generate`: continues or translates a text with a bundle."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands import sampling
from keras_transformer.export.commands.console import BACKEND_HELP
from keras_transformer.export.errors import ExportError

if TYPE_CHECKING:
    from keras_transformer.generation import Generator

EXAMPLES = [
    'bundle "ROMEO:"',
    'bundle "Once upon a time" --sampler random --temperature 0.8 --top-p 0.95 --seed 1',
    'bundle "A person as JSON: " --json-schema person.json',
    "bundle - --lines --sampler beam < sentences.en > sentences.de",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer generate`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle of a language model")
    help = "the text; - reads standard input, without a line break at its end"
    parser.add_argument("prompt", metavar="PROMPT", help=help)
    help = "with -: each line is a prompt and yields one line (line breaks in it become spaces)"
    parser.add_argument("--lines", action="store_true", help=help)
    parser.add_argument("--backend", help=BACKEND_HELP)
    sampling.add_arguments(parser)
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="with --lines: prompts in a batch")
    parser.set_defaults(check=lambda arguments: _check_usage(parser, arguments))


def run(arguments: argparse.Namespace) -> int:
    """Prints the continuation of the prompt as it is generated; returns the exit status."""
    from keras_transformer.export.loading.load import load
    from keras_transformer.generation import Generator

    options = sampling.generation_options(arguments)
    prompts = _prompts(arguments)
    model = load(arguments.bundle, arguments.backend)
    if not isinstance(model, Generator):
        raise ExportError(f"'{arguments.bundle}' is not the bundle of a language model: it cannot generate")
    if arguments.lines:
        texts: list[str] = model.generate(prompts, batch_size=arguments.batch_size, **options)
        for text in texts:
            print(" ".join(text.splitlines()))
        return 0
    streams = getattr(options["sampler"], "streams", True)
    pieces = model.stream(prompts, **options) if streams else _whole(model, prompts, options)
    for piece in pieces:
        print(piece, end="", flush=True)
    print(flush=True)
    return 0


def _whole(model: Generator, prompt: str | bytes, options: dict[str, Any]) -> Iterator[str]:
    yield model.generate(prompt, **options)


def _check_usage(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Reports options without effect as wrong usage."""
    if arguments.lines and arguments.prompt != "-":
        parser.error("--lines reads standard input: PROMPT must be -")
    sampling.check_usage(parser, arguments)


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
