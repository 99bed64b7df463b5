"""Greedy decoding of a written decoder, by a loop of our own in ONNX Runtime and by the engine itself."""

import importlib.util

import numpy as np

from keras_transformer.export.engines.genai.graph import ENGINE, arrays, empty_past, past_of
from keras_transformer.export.errors import ConversionError, ParityError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.generation.stop import as_end_ids

FILE = "model.onnx"


def greedy(path, cache, prompts, max_new_tokens, num_threads=1):
    """Runs a file as the engine does: prompts padded on the right in one pass, then token after token.

    Args:
        path: path of `model.onnx`.
        cache: `KeyValueCache` of the model.
        prompts: list of lists of int.
        max_new_tokens: int.
        num_threads: int.

    Yields:
        After each pass the logits `(B, V)`; it is sent the next token of each row, int `(B,)`.
    """
    session = onnx_session(str(path), num_threads)
    names = [output.name for output in session.get_outputs()]
    lengths = np.array([len(prompt) for prompt in prompts])
    token_ids = np.zeros((len(prompts), lengths.max()), "int64")
    for row, prompt in zip(token_ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    past, start = empty_past(cache, len(prompts), str), 0
    for _ in range(max_new_tokens):
        outputs = dict(zip(names, session.run(None, arrays(token_ids, lengths, start, past)), strict=True))
        token_ids = np.asarray((yield outputs["logits"][:, -1]))[:, None]
        past, start, lengths = past_of(outputs), lengths, lengths + 1


def greedy_tokens(path, cache, prompt, max_new_tokens, end_id=None):
    """The new tokens for one prompt, up to and with the end token."""
    steps, tokens = greedy(path, cache, [prompt], max_new_tokens), []
    logits = next(steps)
    while True:
        tokens.append(int(logits[0].argmax()))
        if len(tokens) == max_new_tokens or tokens[-1] in as_end_ids(end_id):
            return tokens
        logits = steps.send([tokens[-1]])


def check_greedy(path, model, cache, prompts, max_new_tokens, tolerance):
    """Refuses a file that would choose other tokens than the model, unless the two are as good as equal.

    Raises:
        ParityError: a token that the model chose is worse, by more than the tolerance, than the one that the file chooses.
    """
    expected = model.generate(prompts, max_new_tokens=max_new_tokens)
    steps = greedy(path, cache, prompts, max_new_tokens)
    logits = next(steps)
    for step in range(max(map(len, expected))):
        # Past its end a row reads on, as the engine has it do; what it then says is not looked at.
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


def is_installed():
    """Whether the engine is there."""
    return importlib.util.find_spec("onnxruntime_genai") is not None


def engine_tokens(directory, prompt, max_new_tokens):
    """The new tokens that the engine itself gives for one prompt, greedily.

    Args:
        directory: path of what `write_genai` wrote.
        prompt: list of int.
        max_new_tokens: int.

    Returns:
        list of int.
    """
    import onnxruntime_genai

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


def check_engine(directory, cache, prompts, max_new_tokens, end_id):
    """Refuses what the engine itself does not run as ONNX Runtime does.

    Raises:
        ConversionError: it cannot load the directory, or gives other tokens.
    """
    for prompt in prompts:
        expected = greedy_tokens(directory / FILE, cache, prompt, max_new_tokens, end_id)
        try:
            got = engine_tokens(directory, prompt, max_new_tokens)
        except Exception as error:  # The engine raises RuntimeError and its own.
            raise ConversionError(ENGINE, f"the engine cannot run it: {error}") from error
        if got != expected:
            raise ConversionError(ENGINE, f"the engine gives the tokens {got[:12]}, ONNX Runtime {expected[:12]}")
