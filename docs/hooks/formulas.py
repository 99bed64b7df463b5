"""Converts formulas to MathML when the site is built, so that pages need no script, font or server.

The syntax is GitHub's: "math" fences for blocks, and dollar, backtick, formula, backtick, dollar within a line.
"""

import re

from latex2mathml.converter import convert


def in_mathml(markdown):
    """Returns a page with its formulas in MathML."""
    markdown = re.sub(r"^```math\n(.*?)\n```$", _block, markdown, flags=re.DOTALL | re.MULTILINE)
    # In a span: Markdown parses a line that begins with a formula as the start of a block.
    return re.sub(r"\$`(.+?)`\$", lambda match: f"<span>{convert(match[1])}</span>", markdown)


def _block(match):
    # The box scrolls where the formula is wider than a phone.
    return f'<div class="formula">{convert(" ".join(match[1].split()), display="block")}</div>'
