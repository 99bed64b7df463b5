"""The process that `other_backend` starts: it loads the model with Keras on TensorFlow, and exports it."""

from __future__ import annotations

import importlib
import json
import pathlib
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.export import errors, export
from keras_transformer.export.data.export_spec import STEPWISE_TOLERANCE, Probe
from keras_transformer.export.data.report import Report, Reports
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.origin import outputs_of, unit_of
from keras_transformer.export.verification.comparison import Limit, compare, parity_error
from keras_transformer.export.writing.other_backend import JOB, MODEL, RESULT, TOKENIZER
from keras_transformer.text import load_tokenizer
from keras_transformer.utils import interrupts
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import JsonObject


def _serve_job(folder: pathlib.Path) -> None:
    """The work of the second process."""
    job = pickle.loads((folder / JOB).read_bytes())
    sys.path.extend(entry for entry in job["path"] if entry not in sys.path)
    try:
        found = _export_job(folder, job)
        result = {"report" if isinstance(found, Report) else "reports": found.to_dict()}
    except errors.ExportError as error:
        state = {name: value for name, value in vars(error).items() if not name.startswith("__")}
        result = {"error": {"class": type(error).__name__, "message": str(error), "state": state}}
    (folder / RESULT).write_text(json.dumps(result))


def _export_job(folder: pathlib.Path, job: JsonObject) -> Report | Reports:
    try:
        objects = {name: _imported(module, path) for name, (module, path) in job["classes"].items()}
        model = keras.models.load_model(folder / MODEL, custom_objects=objects, compile=False, safe_mode=False)
    except library_exceptions(ImportError) as error:
        raise InvalidModelError(f"model cannot be loaded with Keras on TensorFlow: {one_line(error)}") from error
    _check_origin(model, job["origin"], f"{keras.backend.backend()} in place of {job['backend']}")
    tokenizer = load_tokenizer(folder / TOKENIZER) if (folder / TOKENIZER).exists() else None
    return export(model, tokenizer=tokenizer, progress=lambda line: print(line, flush=True), **job["arguments"])


def _check_origin(model: keras.Model, probes: Sequence[Probe], step: str) -> None:
    """Compares a model with what it computed on another backend.

    Raises:
        ParityError: an output differs.
    """
    limit = Limit(STEPWISE_TOLERANCE, is_quantized=True, unit=unit_of(model))
    for probe in probes:
        for name, found in outputs_of(model, probe).items():
            difference = compare(found, probe.outputs[name], limit=limit)
            if not difference.is_accepted:
                raise parity_error(step, name, probe.label, difference)


def _imported(module: str, path: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


if __name__ == "__main__":
    with interrupts.ends_cleanly():
        _serve_job(pathlib.Path(sys.argv[1]))
