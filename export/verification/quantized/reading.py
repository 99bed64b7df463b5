"""Reading of token rows by a language model in its runtime, in all the ways in which its files are used."""

from collections.abc import Iterator

import numpy as np

from keras_transformer.export.runtime.generation_steps import RuntimeSteps

ROWS, LENGTH = 12, 64
# Of `LENGTH` tokens the first are a prompt, and the last are read one at a time.
_PROMPT, _SINGLES = 0.25, 0.25
# Most logits of one step.
_MOST = 2**24

Source = tuple[np.ndarray, ...] | None


def lengths_of(length: int) -> tuple[int, int]:
    """How many of `length` tokens are a prompt, and how many are read one at a time.

    Example:

    >>> lengths_of(64)
    (16, 16)
    """
    return max(int(length * _PROMPT), 1), int(length * _SINGLES)


def logits_of(
    steps: RuntimeSteps, token_ids: np.ndarray, source: Source = None, prompt: int = 1, singles: int = 0
) -> Iterator[np.ndarray]:
    """Yields the logits that predict the tokens after a prompt, some rows at a time.

    `prefill` reads the prompt, `decode` the tokens after it in one call, and then some one at a time.

    Args:
        steps: `RuntimeSteps`.
        token_ids: int32 array `(B, T)`.
        source: tuple of arrays: the source of an encoder-decoder, of B rows, or None.
        prompt: int >= 1: tokens of the prompt.
        singles: int: how many of the last tokens are read one at a time.

    Yields:
        float32 arrays `(b, T - prompt, V)`.
    """
    length = token_ids.shape[1]
    rows = max(_MOST // (length * steps.spec.vocabulary_size), 1)
    for start in range(0, len(token_ids), rows):
        tokens = token_ids[start : start + rows]
        own = None if source is None else tuple(each[start : start + rows] for each in source)
        yield _read(steps, tokens, own, prompt, singles)


def _read(steps: RuntimeSteps, tokens: np.ndarray, source: Source, prompt: int, singles: int) -> np.ndarray:
    count, length = tokens.shape
    cache = steps.init_cache(count, length, source)
    output, cache = steps.prefill(tokens[:, :prompt], np.full(count, prompt, "int32"), cache)
    parts, index = [output.logits], prompt
    ends = [length - 1 - singles, *range(length - singles, length)]
    for end in ends:
        if end > index:
            output, cache = steps.decode_step(tokens[:, index:end], cache, np.full(count, index, "int32"))
            parts.append(output.logits)
            index = end
    return np.concatenate(parts, axis=1)


def sample(steps: RuntimeSteps, first: np.ndarray, length: int, source: Source = None, seed: int = 0) -> np.ndarray:
    """Tokens that a model writes itself, sampled from its own distributions.

    Greedy decoding would repeat itself, and random tokens are no text to the model.

    Args:
        steps: `RuntimeSteps` of the float model.
        first: int32 array `(B,)`: the first token of each row.
        length: int: tokens of a row.
        source: as in `logits_of`.
        seed: int.

    Returns:
        int32 array `(B, length)`.
    """
    random = np.random.default_rng(seed)
    count = len(first)
    tokens = np.zeros((count, length), "int32")
    tokens[:, 0] = first
    cache = steps.init_cache(count, length, source)
    output, cache = steps.prefill(tokens[:, :1], np.ones(count, "int32"), cache)
    for index in range(1, length):
        logits = np.asarray(output.logits[:, -1], "float64")
        tokens[:, index] = (logits + random.gumbel(size=logits.shape)).argmax(-1)
        if index < length - 1:
            output, cache = steps.decode_step(tokens[:, index : index + 1], cache, np.full(count, index, "int32"))
    return tokens


def rows_of(arrays: dict[str, np.ndarray], names: tuple[str, ...], count: int) -> tuple[np.ndarray, ...]:
    """Named arrays with `count` rows, repeated from the first on."""
    return tuple(np.take(arrays[name], np.arange(count) % len(arrays[name]), axis=0) for name in names)
