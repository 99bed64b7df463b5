"""Export of a model on JAX or torch, in a second process that runs Keras on TensorFlow."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export import errors
from keras_transformer.export.data.report import Report, Reports
from keras_transformer.export.errors import ConversionError, InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.utils.errors import library_exceptions, on_failure, one_line, revived

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.data.export_spec import Probe
    from keras_transformer.export.request import Request

# The files by which the two processes speak.
MODEL, JOB, RESULT, TOKENIZER = "model.keras", "job.pickle", "result.json", "tokenizer"


def export_elsewhere(
    model: "keras.Model", request: "Request", progress: Progress = False, origin: "Sequence[Probe]" = ()
) -> Report | Reports:
    """Runs `export` in a process whose Keras backend is TensorFlow.

    Args:
        model: a model on any backend; its classes must be importable, so not defined in the script being run.
        request: `Request` of the export.
        progress: see `export`; the lines come from the other process.
        origin: probes with what the model computes here, which the other process compares with before anything else.

    Returns:
        The `Report`, or `Reports` of several precisions.

    Raises:
        ExportError: the error that `export` raised there.
        InvalidModelError: the model cannot be saved, or one of its classes cannot be imported.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _write_job(folder, model, request, origin)
        with Steps(0, progress) as steps:
            log = _run(folder, steps.note)
        if not (folder / RESULT).exists():
            reason = f"the TensorFlow process ended without a result: {log.strip().splitlines()[-1:]}"
            raise ConversionError("export", reason, log)
        result = json.loads((folder / RESULT).read_text())
    if "error" in result:
        raise revived(result["error"], errors.ExportError, vars(errors))
    return Reports.from_dict(result["reports"]) if "reports" in result else Report.from_dict(result["report"])


def _write_job(folder: pathlib.Path, model: "keras.Model", request: "Request", origin: "Sequence[Probe]") -> None:
    import keras

    from keras_transformer.export.spec.twins import custom_objects_of

    classes = {}
    for name, cls in custom_objects_of(model).items():
        if cls.__module__ == "__main__":
            raise InvalidModelError(f"class {cls.__name__} is defined in the running script", Remedy.MODULE)
        classes[name] = (cls.__module__, cls.__qualname__)
    try:
        model.save(folder / MODEL)
    except library_exceptions() as error:
        raise InvalidModelError(f"model cannot be saved for export from TensorFlow: {one_line(error)}") from error
    if request.tokenizer is not None:
        request.tokenizer.save(folder / TOKENIZER)
    arguments: dict[str, object] = {"directory": str(request.directory), "formats": request.formats}
    arguments |= {"quantize": request.quantize, "probes": request.probes, "options": request.options}
    job = {"arguments": arguments, "classes": classes, "path": sys.path}
    job |= {"origin": list(origin), "backend": keras.backend.backend()}
    try:
        content = pickle.dumps(job)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        # A score that is a lambda, or calibration data that is a generator, cannot go to another process.
        raise InvalidModelError(f"arguments cannot be sent to the process that exports: {one_line(error)}") from error
    (folder / JOB).write_bytes(content)


def _run(folder: pathlib.Path, progress: Callable[[str], object]) -> str:
    """Starts the process, forwards its progress, and waits; returns its stderr."""
    # The files are for CPUs, and this process may occupy the memory of the GPU.
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "keras_transformer.export.writing.other_backend_worker", str(folder)]
    with tempfile.TemporaryFile("w+") as log:
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
            on_failure(process.terminate),
        ):
            for line in process.stdout or ():
                progress(line.rstrip("\n"))
            process.wait()
        log.seek(0)
        return log.read()
