"""Names of outputs in graphs where inputs and outputs share a namespace. Imports no library."""

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
