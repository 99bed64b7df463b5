"""The command `chat`: a conversation with a bundle in the terminal."""

import argparse
import sys
from collections.abc import Iterator

from keras_transformer.export.commands import sampling
from keras_transformer.export.commands.console import BACKEND_HELP
from keras_transformer.export.errors import ExportError

EXAMPLES = [
    "bundle",
    'bundle --system "Answer in one sentence." --sampler random --temperature 0.7 --seed 1',
    'bundle --message "What is the capital of France?"',
]

_SAMPLERS = ("greedy", "random")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer chat`."""
    parser.add_argument(
        "bundle", metavar="DIR", help="the bundle of a language model whose tokenizer has a chat template"
    )
    parser.add_argument("--system", metavar="TEXT", help="the message of the system, at the beginning")
    help = "a message of the user; repeatable. Without it, each line of standard input is one, up to its end (Ctrl-D)"
    parser.add_argument("--message", action="append", metavar="TEXT", help=help)
    parser.add_argument("--backend", help=BACKEND_HELP)
    sampling.add_arguments(parser, _SAMPLERS)
    parser.set_defaults(check=lambda arguments: sampling.check_usage(parser, arguments, _SAMPLERS))


def run(arguments: argparse.Namespace) -> int:
    """Prints the answer to each message as it is generated; returns the exit status."""
    from keras_transformer.export.loading.load import load
    from keras_transformer.generation import Generator

    options = sampling.generation_options(arguments)
    model = load(arguments.bundle, arguments.backend)
    if not isinstance(model, Generator):
        raise ExportError(f"'{arguments.bundle}' is not the bundle of a language model: it cannot chat")
    if getattr(model.tokenizer, "chat_template", None) is None:
        advice = f"keras-transformer generate {arguments.bundle} TEXT continues a text"
        raise ExportError(f"'{arguments.bundle}' cannot chat: its tokenizer has no chat template; {advice}")
    system = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
    conversation = model.conversation(system)
    for message in arguments.message or _typed():
        for piece in conversation.stream(message, **options):
            print(piece, end="", flush=True)
        print(flush=True)
    return 0


def _typed() -> Iterator[str]:
    """The lines of standard input that are not empty, asked for on a terminal."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\r\n")
