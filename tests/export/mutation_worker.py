"""Runs damaged bundles, each in a separate process: `mutation_worker.py JOBS.json RESULTS.json`.

A job names a bundle, the backend, a file of the bundle and the file that takes its place; the manifest is given the hash of
what came, so that the runtime itself meets it. The result is what came of it: the class of a typed error, "same" when the
bundle gives what it gave before, or something that must not be: an untyped error, a signal, a hang.

The parent imports the runtimes and runs none of them, so that it may fork.
"""

import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import sys

import ai_edge_litert.interpreter  # noqa: F401
import numpy as np
import onnxruntime  # noqa: F401

from keras_transformer.export import ExportError, load, verify_bundle

SECONDS = 20
MEMORY = 4 << 30  # An absurd size must fail at once, as on a machine with less memory.


def main(jobs, results):
    """Runs the jobs sequentially."""
    jobs = json.loads(pathlib.Path(jobs).read_text())
    expected, found = {}, []
    for job in jobs:
        source = pathlib.Path(job["bundle"])
        key = f"{source.name}_{job['backend']}"
        if key not in expected:
            expected[key] = in_child(lambda source=source, job=job: digest(source, job["backend"]))
        found.append(run(job, source, pathlib.Path(results).parent / "work" / source.name, expected[key]))
    pathlib.Path(results).write_text(json.dumps(found))


def run(job, source, bundle, expected):
    """Replaces a file by a damaged one, runs the bundle, and restores the file."""
    if not bundle.exists():
        shutil.copytree(source, bundle)
    manifest = json.loads((source / "manifest.json").read_text())
    content = pathlib.Path(job["content"]).read_bytes()
    record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["files"][job["file"]] = record
    (bundle / job["file"]).write_bytes(content)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    result = in_child(lambda: attempt(bundle, job["backend"], expected))
    (bundle / job["file"]).write_bytes((source / job["file"]).read_bytes())
    return result


def attempt(bundle, backend, expected):
    """Runs the bundle; if the outputs differ, `verify` must fail."""
    try:
        if digest(bundle, backend) == expected:
            return "same"
        verify_bundle(bundle, [backend])
    except ExportError as error:
        return type(error).__name__ if "\n" not in str(error) else f"several lines: {error}"
    except BaseException as error:
        return f"untyped {type(error).__name__}: {error}"
    return "within tolerance"


def digest(bundle, backend):
    """Returns the outputs of a bundle, shortened."""
    model = load(bundle, backend, num_threads=1)
    if hasattr(model, "generate"):
        return json.dumps([model.generate("ab c", max_new_tokens=4), model.generate([[7, 8], [9]], max_new_tokens=3)])
    state = hashlib.sha256()
    for sizes in ({}, {"batch": 2}):
        for name, array in sorted(model(model.example(**sizes)).items()):
            state.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def in_child(function):
    """Returns the result of a function in a forked process, or its exit status."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(SECONDS)
        os.write(writer, function().encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"signal {os.WTERMSIG(status)}"
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
