"""Formulas in MathML, made when the site is built: no script, no font and no server is needed to read them.

They are written as GitHub reads them too: blocks in a fence named "math", and within a line as dollar, backtick, formula,
backtick, dollar.
"""

import re

from latex2mathml.converter import convert


def in_mathml(markdown):
    """A page with its formulas in MathML."""
    markdown = re.sub(r"^```math\n(.*?)\n```$", _block, markdown, flags=re.DOTALL | re.MULTILINE)
    # In a span: Markdown takes a line that begins with a formula for the beginning of a block.
    return re.sub(r"\$`(.+?)`\$", lambda match: f"<span>{convert(match[1])}</span>", markdown)


def _block(match):
    return convert(" ".join(match[1].split()), display="block")
