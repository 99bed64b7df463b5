"""Greedy decoding of a written decoder, in ONNX Runtime and in the engine."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.engines.genai.graph import ENGINE, arrays, empty_past, past_of
from keras_transformer.export.errors import ConversionError, ParityError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.spec.export_spec import STEPWISE_TOLERANCE
from keras_transformer.generation.stop import as_end_ids

if TYPE_CHECKING:
    from keras_transformer.export.engines.genai.cache import KeyValueCache
    from keras_transformer.utils.types import Path


FILE = "model.onnx"


def greedy(
    path: Path, cache: KeyValueCache, prompts: Sequence[Sequence[int]], max_new_tokens: int, num_threads: int = 1
) -> Generator[np.ndarray, Any, None]:
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
    past = empty_past(cache, len(prompts), str)
    start: Any = 0
    for _ in range(max_new_tokens):
        results: Any = session.run(None, arrays(token_ids, lengths, start, past))
        outputs = dict(zip(names, results, strict=True))
        token_ids = np.asarray((yield outputs["logits"][:, -1]))[:, None]
        past, start, lengths = past_of(outputs), lengths, lengths + 1


def greedy_tokens(
    path: Path, cache: KeyValueCache, prompt: Sequence[int], max_new_tokens: int, end_id: Any = None
) -> list[int]:
    """Returns the new tokens for one prompt, up to and including the end token."""
    steps, tokens = greedy(path, cache, [prompt], max_new_tokens), []
    logits = next(steps)
    while True:
        tokens.append(int(logits[0].argmax()))
        if len(tokens) == max_new_tokens or tokens[-1] in as_end_ids(end_id):
            return tokens
        logits = steps.send([tokens[-1]])


def check_greedy(
    path: Path,
    model: Any,
    cache: KeyValueCache,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    tolerance: float | None,
) -> None:
    """Checks that a file chooses the tokens of the model, except for ties within the tolerance.

    Raises:
        ParityError: a token that the model chose is worse, by more than the tolerance, than the one that the file chooses.
    """
    tolerance = tolerance or STEPWISE_TOLERANCE
    expected = model.generate(prompts, max_new_tokens=max_new_tokens)
    steps = greedy(path, cache, prompts, max_new_tokens)
    logits = next(steps)
    for step in range(max(map(len, expected))):
        # Rows continue after their end, as in the engine; their further logits are ignored.
        tokens = [row[step] if step < len(row) else 0 for row in expected]
        open_rows = [row for row, tokens_of_row in enumerate(expected) if step < len(tokens_of_row)]
        scale = np.abs(logits).max()
        gap = (logits.max(axis=1) - logits[np.arange(len(tokens)), tokens])[open_rows].max()
        if not gap <= tolerance * scale:
            raise ParityError(ONNX.name, "logits", f"greedy decoding, token {step + 1}", gap, scale, tolerance)
        try:
            logits = steps.send(tokens)
        except StopIteration:
            return


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
    directory: pathlib.Path, cache: KeyValueCache, prompts: Sequence[Sequence[int]], max_new_tokens: int, end_id: Any
) -> None:
    """Checks that the engine decodes the same tokens as ONNX Runtime.

    Raises:
        ConversionError: the engine cannot load the directory, or decodes other tokens.
    """
    for prompt in prompts:
        expected = greedy_tokens(directory / FILE, cache, prompt, max_new_tokens, end_id)
        try:
            got = engine_tokens(directory, prompt, max_new_tokens)
        except Exception as error:  # The engine raises RuntimeError and its own.
            raise ConversionError(ENGINE, f"the engine cannot run it: {error}") from error
        if got != expected:
            raise ConversionError(ENGINE, f"the engine generates the tokens {got[:12]}, ONNX Runtime {expected[:12]}")
