"""Greedy decoding of a written decoder, in ONNX Runtime and in the engine."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.engines.genai.graph import ENGINE, arrays
from keras_transformer.export.engines.greedy import Steps, greedy_tokens
from keras_transformer.export.engines.past_present import PastPresent
from keras_transformer.export.errors import ConversionError
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    from keras_transformer.export.engines.key_value_cache import KeyValueCache
    from keras_transformer.utils.types import Path


FILE = "model.onnx"


def greedy(
    path: Path, cache: KeyValueCache, prompts: Sequence[Sequence[int]], max_new_tokens: int, num_threads: int = 1
) -> Steps:
    """Runs a file as the engine does: right-padded prompts in one pass, then single tokens.

    Args:
        path: path of `model.onnx`.
        cache: `KeyValueCache` of the model.
        prompts: list of lists of int.
        max_new_tokens: int.
        num_threads: int.

    Yields:
        The logits `(B, V)` after each pass; `send` takes the next token of each row, int `(B,)`.
    """
    session = onnx_session(str(path), num_threads)
    names = [output.name for output in session.get_outputs()]
    lengths = np.array([len(prompt) for prompt in prompts])
    token_ids = np.zeros((len(prompts), lengths.max()), "int64")
    for row, prompt in zip(token_ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    caches = PastPresent(cache)
    past = caches.empty(len(prompts))
    start: np.ndarray | int = 0
    for _ in range(max_new_tokens):
        results: list[np.ndarray] = session.run(None, arrays(token_ids, lengths, start, past))
        outputs = dict(zip(names, results, strict=True))
        token_ids = np.asarray((yield outputs["logits"][:, -1]))[:, None]
        past, start, lengths = caches.next_past(outputs), lengths, lengths + 1


def is_installed() -> bool:
    """Whether the engine is installed."""
    return importlib.util.find_spec("onnxruntime_genai") is not None


def engine_tokens(directory: pathlib.Path, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
    """Returns the new tokens of the engine for one prompt, with greedy decoding.

    Args:
        directory: path of a directory that `write_genai` wrote.
        prompt: list of int.
        max_new_tokens: int.

    Returns:
        list of int.
    """
    onnxruntime_genai = importlib.import_module("onnxruntime_genai")

    model = onnxruntime_genai.Model(str(directory))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + max_new_tokens, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(np.array([prompt], "int32"))
    tokens = []
    while not generator.is_done():
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    return tokens


def check_engine(
    directory: pathlib.Path,
    cache: KeyValueCache,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    end_id: Sequence[int],
) -> None:
    """Checks that the engine decodes the same tokens as ONNX Runtime.

    Raises:
        ConversionError: the engine cannot load the directory, or decodes other tokens.
    """
    for prompt in prompts:
        steps = greedy(directory / FILE, cache, [prompt], max_new_tokens)
        expected = greedy_tokens(steps, max_new_tokens, end_id)
        try:
            got = engine_tokens(directory, prompt, max_new_tokens)
        except library_exceptions() as error:
            raise ConversionError(ENGINE, f"the engine cannot run it: {error}") from error
        if got != expected:
            raise ConversionError(ENGINE, f"the engine generates the tokens {got[:12]}, ONNX Runtime {expected[:12]}")
