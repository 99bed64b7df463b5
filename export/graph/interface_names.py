"""Names of inputs and outputs in graphs. Imports no library."""

import keyword
import re
from collections.abc import Iterable


def output_names(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """The name in the graph of each output of a signature.

    An output with the name of an input, such as a cache, is named `NAME_output`.

    Args:
        inputs: names of the inputs.
        outputs: names of the outputs.

    Returns:
        Dict of name to the name in the graph.

    Example:

    >>> output_names(["token_ids", "key"], ["logits", "key"])
    {'logits': 'logits', 'key': 'key_output'}
    """
    taken = set(inputs)
    return {name: f"{name}_output" if name in taken else name for name in outputs}


def identifier(name: str, prefix: str) -> str:
    """A name as an identifier, which every format takes: ASCII letters, digits and underscores, after a letter.

    Inputs are arguments while a model is traced, so that none is a keyword of Python, or `self`.

    Args:
        name: any text.
        prefix: "input" or "output", which goes before a name that may not stay.

    Example:

    >>> identifier("left-right 2", "input"), identifier("1st", "input")
    ('left_right_2', 'input_1st')
    """
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    is_reserved = prefix == "input" and (keyword.iskeyword(found) or found == "self")
    return found if found[:1].isalpha() and not is_reserved else f"{prefix}_{found.lstrip('_')}".rstrip("_")
