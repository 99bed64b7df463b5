"""Greedy decoding of a `.litertlm` file's graphs, by a loop of our own in LiteRT and by the engine itself."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.export_spec import STEPWISE_TOLERANCE
from keras_transformer.export.engines.litertlm.graph import DECODE, ENGINE
from keras_transformer.export.errors import ConversionError, ParityError
from keras_transformer.export.tflite.format import TFLITE
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.utils.captured_stderr import captured_stderr
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.utils.types import Path


_PROMPT, _NEW_TOKENS = "The quick brown fox", 8


def greedy(
    path: Path, spec: ExportSpec, prompt: Sequence[int], num_threads: int = 1
) -> Generator[np.ndarray, int, None]:
    """Runs the graphs as the engine does: all tokens of the prompt but the last in chunks, then one token after another.

    Args:
        path: path of the TFLite file.
        spec: the `ExportSpec` that it was written from.
        prompt: list of int.
        num_threads: int.

    Yields:
        The logits `(V,)` of each token from the last of the prompt on; it is sent the next token, an int.
    """
    engine = TFLiteRuntime(str(path), DECODE, num_threads)
    cache = {
        each.name: np.zeros([size or 0 for size in each.shape], each.dtype)
        for each in spec.signatures[DECODE].inputs[2:]
    }
    buckets = sorted(int(name.split("_")[1]) for name in spec.signatures if name != DECODE)
    position, rest = 0, prompt[:-1]
    while rest:
        bucket = next((each for each in buckets if each >= len(rest)), buckets[-1])
        chunk, rest = rest[:bucket], rest[bucket:]
        arrays = {"tokens": np.zeros((1, bucket), "int32"), "input_pos": np.zeros(bucket, "int32")}
        arrays["tokens"][0, : len(chunk)] = chunk
        arrays["input_pos"][: len(chunk)] = np.arange(position, position + len(chunk))
        cache = engine.call(f"prefill_{bucket}", arrays | cache)
        position += len(chunk)
    token = prompt[-1]
    while True:
        arrays = {"tokens": np.array([[token]], "int32"), "input_pos": np.array([position], "int32")}
        outputs = engine.call(DECODE, arrays | cache)
        token, position = (yield outputs.pop("logits")[0, -1]), position + 1
        cache = outputs


def greedy_tokens(
    path: Path, spec: ExportSpec, prompt: Sequence[int], max_new_tokens: int, end_id: int | Sequence[int] | None = None
) -> list[int]:
    """Returns the new tokens for a prompt, up to and including the end token."""
    steps, tokens = greedy(path, spec, prompt), []
    logits = next(steps)
    while True:
        tokens.append(int(logits.argmax()))
        if len(tokens) == max_new_tokens or tokens[-1] in as_end_ids(end_id):
            return tokens
        logits = steps.send(tokens[-1])


def check_greedy(path: Path, spec: ExportSpec, model: keras.Model, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Checks that the graphs choose the tokens of the model, except for ties within the tolerance.

    Raises:
        ParityError: a token that the model chose is worse, by more than the tolerance, than the one that the graphs choose.
    """
    steps, tolerance = greedy(path, spec, prompt), spec.tolerance or STEPWISE_TOLERANCE
    logits = next(steps)
    for step, token in enumerate(model.generate(prompt, max_new_tokens=max_new_tokens)):
        gap, scale = logits.max() - logits[token], np.abs(logits).max()
        if not gap <= tolerance * scale:
            raise ParityError(TFLITE.name, "logits", f"greedy decoding, token {step + 1}", gap, scale, tolerance)
        logits = steps.send(token)


def is_installed() -> bool:
    """Whether the engine is installed."""
    return importlib.util.find_spec("litert_lm") is not None


def ask_engine(
    path: Path, prompt: str, max_new_tokens: int, tokens: Sequence[int] | None = None
) -> tuple[str, list[int], object]:
    """Returns the greedy continuation of a prompt by the engine on the CPU.

    Args:
        path: path of a `.litertlm` file.
        prompt: str.
        max_new_tokens: int: with those of the prompt at most the slots of the file's cache.
        tokens: list of int, to be spelled by the engine too, or None.

    Returns:
        `(text, ids, spelled)`: the generated text, str; the tokens of the prompt, list of int; `tokens` as text, or None.

    Raises:
        ConversionError: it cannot load or run the file; has what it printed as `log`.
    """
    litert_lm = importlib.import_module("litert_lm")

    cpu, sampler = litert_lm.Backend.CPU(), litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0)
    options = {"apply_prompt_template": False, "sampler_config": sampler, "max_output_tokens": max_new_tokens}
    with captured_stderr() as log:
        try:
            with (
                litert_lm.Engine(str(path), backend=cpu, cache_dir=":nocache") as engine,
                engine.create_session(**options) as session,
            ):
                session.run_prefill([prompt])
                text = session.run_decode().texts[0]
                return text, engine.tokenize(prompt), tokens and engine.detokenize(tokens)
        except library_exceptions() as error:  # With details on stderr.
            raise ConversionError(ENGINE, f"the engine cannot run it: {error}", log()) from error


def check_engine(
    path: Path, graphs: Path, spec: ExportSpec, model: keras.Model, prompt: str, max_new_tokens: int
) -> None:
    """Checks that the engine decodes the same tokens as LiteRT.

    Raises:
        ConversionError: it cannot run the file, tokenizes the prompt differently, or generates another text.
    """
    ids = model.tokenizer.encode(prompt)
    tokens = greedy_tokens(graphs, spec, with_start_token(model, prompt), max_new_tokens, model.end_id)
    tokens = tokens[:-1] if tokens[-1] in as_end_ids(model.end_id) else tokens
    text, read, expected = ask_engine(path, prompt, max_new_tokens, tokens)
    if read != ids:
        raise ConversionError(ENGINE, f"the engine reads {prompt!r} as the tokens {read}, the model as {ids}")
    if text != (expected or ""):
        raise ConversionError(ENGINE, f"the engine generates {text!r} after {prompt!r}, LiteRT {expected!r}")


def fitting_prompt(model: keras.Model, slots: int) -> tuple[str, int]:
    """Returns a prompt and a number of new tokens that fit the cache."""
    new = min(_NEW_TOKENS, slots // 2)
    prompt = _PROMPT
    while len(with_start_token(model, prompt)) > slots - new and len(prompt) > 1:
        prompt = prompt[: len(prompt) // 2]
    return prompt, new


def with_start_token(model: keras.Model, prompt: str) -> list[int]:
    """Returns the tokens of a text after the start token, if the model has one, which the engine adds."""
    start = [] if model.start_id is None else [model.start_id]
    return [*start, *model.tokenizer.encode(prompt)]
