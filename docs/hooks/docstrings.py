"""Converts docstrings to Markdown: examples to code blocks, and the Keras sections that the Google style lacks."""

import re
import textwrap

import griffe


class KerasDocstrings(griffe.Extension):
    """Griffe extension that converts the docstrings for mkdocstrings."""

    def on_object(self, *, obj, **arguments):
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)


def in_markdown(text):
    """Returns a docstring with fenced examples, Keras sections as paragraphs and lists, and arXiv numbers as links."""
    text = re.sub(r"^>>> .*(?:\n.+)*", _fenced, text, flags=re.MULTILINE)
    text = re.sub(r"^Example:$", "**Example**", text, flags=re.MULTILINE)
    text = re.sub(r"arXiv:? ?(\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    text = re.sub(r"^Call arguments:\n((?:    .*\n?|\n(?=    ))+)", _call_arguments, text, flags=re.MULTILINE)
    text = re.sub(r"^Returns:\n((?:    .*\n?|\n(?=    ))+)", _returns, text, flags=re.MULTILINE)
    # A word and a colon at the start of a paragraph: "Reference: ...", "Export: ...".
    return re.sub(r"(?<=\n\n)([A-Z][a-z]+(?: [a-z]+)?): (?=\S)", r"**\1:** ", text)


def _fenced(match):
    return f"```pycon\n{match[0]}\n```"


def _returns(match):
    """Returns the section as a paragraph, because the Google style would parse a type from it."""
    return f"**Returns:** {textwrap.dedent(match[1]).strip()}\n\n"


def _call_arguments(match):
    """Returns the section as a list with one item per argument."""
    lines = ["**Call arguments:**", ""]
    for line in match[1].splitlines():
        if argument := re.match(r"    (\S.*?): (.*)", line):
            lines.append(f"- `{argument[1]}`: {argument[2]}")
        elif line.strip():
            lines.append(f"  {line.strip()}")
    return "\n".join([*lines, "", ""])
