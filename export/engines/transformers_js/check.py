"""Folders in transformers.js itself, in Node, compared with the model."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.export.errors import ConversionError, MissingLibraryError, ParityError
from keras_transformer.utils.types import JsonObject, Path

NAME, PACKAGE = "transformers_js", "@huggingface/transformers"
TOLERANCE = 1e-5
_SECONDS, _MODEL = 300, "model"
# Reads what to run on stdin, and writes the results as JSON on the last line.
_PROGRAM = """
import { pipeline, env, RawImage } from '@huggingface/transformers';
import { readFileSync } from 'node:fs';
const { root, name, task, inputs, count } = JSON.parse(readFileSync(0, 'utf-8'));
env.allowRemoteModels = false;
env.localModelPath = root;
const run = await pipeline(task, name);
const options = { max_new_tokens: count, do_sample: false };

// The text of the pipeline, and the tokens behind the first ones of the decoder.
async function generated(each) {
  if (task === 'automatic-speech-recognition') {
    const samples = Float32Array.from(each.samples);
    const { input_features } = await run.processor(samples);
    const ids = await run.model.generate({ inputs: input_features, ...options });
    return { text: (await run(samples, options)).text, tokens: rows(ids)[0] };
  }
  const isDecoder = task === 'text-generation';
  run.tokenizer.padding_side = isDecoder ? 'left' : 'right';
  const special = isDecoder ? Boolean(run.tokenizer.add_bos_token) : true;
  const given = run.tokenizer(each, { padding: true, add_special_tokens: special });
  const ids = rows(await run.model.generate({ ...given, ...options }));
  const start = isDecoder ? given.input_ids.dims[1] : 1;
  const answers = await run(each, isDecoder ? { ...options, return_full_text: false } : options);
  const texts = answers.flat().map((answer) => Object.values(answer)[0]);
  return texts.map((text, row) => ({ text, tokens: ids[row].slice(start) }));
}

const rows = (ids) => ids.tolist().map((row) => row.map(Number));
const results = [];
for (const each of inputs) {
  if (count) {
    results.push(await generated(each));
  } else if (task === 'feature-extraction') {
    const found = await run(each);
    results.push({ dims: found.dims, data: Array.from(found.data) });
  } else {
    const given = each.data ? new RawImage(Uint8ClampedArray.from(each.data), each.width, each.height, 3) : each;
    results.push(await run(given, { top_k: 100000 }));
  }
}
console.log('\\n' + JSON.stringify(results));
process.exit(0);
"""


def check_node(node_modules: Path) -> pathlib.Path:
    """Returns the folder in which Node finds the package.

    Raises:
        MissingLibraryError: there is no Node, or no such package.
    """
    folder = pathlib.Path(node_modules).resolve()
    if shutil.which("node") is None:
        raise MissingLibraryError("running transformers.js", "Node.js", command="install it from nodejs.org")
    if not (folder / PACKAGE / "package.json").is_file():
        raise MissingLibraryError(f"running transformers.js from '{folder}'", PACKAGE, command=f"npm install {PACKAGE}")
    return folder.parent


def ask(
    folder: pathlib.Path, task: str, inputs: Sequence[object], node_modules: Path, max_new_tokens: int | None = None
) -> list[Any]:
    """Returns what the pipeline answers, in Node, in the precision of the folder.

    Args:
        folder: the written folder.
        task: name of the pipeline.
        inputs: texts, or uint8 arrays `(height, width, 3)`; of a task that generates, lists of texts, or float arrays of
            samples.
        node_modules: folder of the npm packages.
        max_new_tokens: int for a task that generates; None for others.

    Returns:
        List: for "feature-extraction" an array of each text; of a task that generates, for each list of texts a list of
        `{"text": ..., "tokens": ...}`, for samples one of them, with the first tokens of the decoder; otherwise a list of
        dicts.

    Raises:
        ConversionError: it fails; has what it printed as `log`.
    """
    given = [_as_json(each) for each in inputs]
    cwd = check_node(node_modules)
    with tempfile.TemporaryDirectory() as root:
        # The library refuses the names of folders that are being written, which begin with a dot.
        pathlib.Path(root, _MODEL).symlink_to(folder.resolve(), target_is_directory=True)
        request = json.dumps(
            {"root": f"{root}/", "name": _MODEL, "task": task, "inputs": given, "count": max_new_tokens}
        )
        command = ["node", "--input-type=module", "-e", _PROGRAM]
        done = subprocess.run(command, input=request, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ends"]
        raise ConversionError(NAME, next((line for line in lines if "Error" in line), lines[-1]), done.stderr)
    results = json.loads(done.stdout.strip().splitlines()[-1])
    if task != "feature-extraction":
        return results
    return [np.reshape(np.array(each["data"], "float32"), each["dims"]) for each in results]


def scores_of(answer: Sequence[JsonObject], class_names: Sequence[str]) -> np.ndarray:
    """The scores of an answer in the order of the classes."""
    found = {each["label"]: each["score"] for each in answer}
    return np.array([found[name] for name in class_names], "float32")


def compare(found: np.ndarray, expected: np.ndarray, label: str) -> None:
    """Raises a `ParityError` where an answer differs."""
    if found.shape != expected.shape:
        detail = f"is {found.shape}, the model returns {expected.shape}"
        raise ParityError(NAME, "answer", label, np.nan, 1.0, TOLERANCE, detail)
    difference, scale = float(np.abs(found - expected).max()), float(np.abs(expected).max())
    if not difference <= TOLERANCE * max(scale, 1.0):
        raise ParityError(NAME, "answer", label, difference, scale, TOLERANCE)


def _as_json(value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 1:
        return {"samples": value.tolist()}
    height, width, _ = value.shape
    return {"data": np.ravel(value).tolist(), "height": height, "width": width}
