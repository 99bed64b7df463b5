"""The command `completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

EXAMPLES = [
    "bash > ~/.local/share/bash-completion/completions/keras-transformer",
    'zsh > "${fpath[1]}/_keras-transformer"',
]
_NAME = "keras-transformer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer completion`."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Prints the script; returns the exit status."""
    from keras_transformer.export.commands.main import COMMANDS, options_of

    print(_SCRIPTS[arguments.shell]({name: options_of(name) for name in COMMANDS}))
    return 0


def _bash(options: dict[str, list[str]]) -> str:
    cases = "\n".join(f'    {name}) words="{" ".join(words)}" ;;' for name, words in options.items())
    return f"""_keras_transformer() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words="{" ".join(options)}"
  if [ "$COMP_CWORD" -gt 1 ]; then
    words=""
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || [[ "$word" == -* ]]; then
    COMPREPLY=( $(compgen -W "$words" -- "$word") )
  fi
}}
complete -o default -F _keras_transformer {_NAME}"""


def _zsh(options: dict[str, list[str]]) -> str:
    cases = "\n".join(f"    {name}) compadd -- {' '.join(words)} ;;" for name, words in options.items())
    return f"""#compdef {_NAME}
_keras_transformer() {{
  if (( CURRENT == 2 )); then
    compadd -- {" ".join(options)}
    return
  fi
  if [[ "$PREFIX" != -* ]]; then
    _files
    return
  fi
  case "$words[2]" in
{cases}
  esac
}}
compdef _keras_transformer {_NAME}"""


def _fish(options: dict[str, list[str]]) -> str:
    lines = [f"complete -c {_NAME} -n __fish_use_subcommand -f -a {name}" for name in options]
    for name, words in options.items():
        where = f"complete -c {_NAME} -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{where} -l {word.removeprefix('--')}" for word in words]
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
