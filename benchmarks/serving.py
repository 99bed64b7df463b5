"""Servers of a bundle under load, against a bare loop of ONNX Runtime with the same model and run.

    pip install ".[serve,ray]"
    python benchmarks/serving.py                        # a Vision Transformer of 6 x 128 over 32 x 32 images
    python benchmarks/serving.py --bundle DIR           # any bundle of arrays
    python benchmarks/serving.py --servers binary json  # without Ray

The loop runs one thread per session, without network, with as many images in a call as a request has. The servers are
`keras-transformer serve` with binary tensors ("binary") and with nested lists in JSON ("json"), and Ray Serve behind the
same application ("ray", binary). A separate process sends requests over persistent connections: first as many as are
answered, twice as many at once as can be computed; then 80 % of that rate in even steps, for p50 and p99. Servers and
clients share the cores of this machine, unlike in production, so the measured overhead is an upper bound.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from measure import Table, versions

from keras_transformer.export import load
from keras_transformer.export.serving.open_inference.tensors import DATATYPES

_HERE = pathlib.Path(__file__).parent


def export_model(directory, tiny):
    """Exports a classifier of 32 x 32 images in a separate process, because converters leak memory."""
    size = "1, 8, 2, 16" if tiny else "6, 128, 4, 256"
    lines = [
        "import keras; from keras_transformer import models, tasks; from keras_transformer.export import export",
        "keras.utils.set_random_seed(0)",
        f"backbone = models.ViT(models.Size({size}), 4, 32)",
        f"export(tasks.ImageClassifier(backbone, 10), {str(directory)!r}, formats=['onnx'])",
    ]
    run_lines(lines)


def run_lines(lines):
    """Runs lines of Python in a process of its own, on TensorFlow."""
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env=environment)


def bare(bundle, threads, batch, seconds):
    """Returns examples per second, and seconds per call, of threads that call ONNX Runtime in a loop."""
    model = load(bundle, num_threads=1)
    arrays, times = model.example(batch=batch), [[] for _ in range(threads)]
    model(arrays)
    end = time.perf_counter() + seconds

    def loop(own):
        while (start := time.perf_counter()) < end:
            model._runtime(arrays)
            own.append(time.perf_counter() - start)

    workers = [threading.Thread(target=loop, args=(own,)) for own in times]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    calls = [each for own in times for each in own]
    return len(calls) * batch / (time.perf_counter() - start), calls


@contextlib.contextmanager
def server(*arguments):
    """Runs a server in a separate process; yields its address."""
    with server_process(*arguments) as (address, _):
        yield address


@contextlib.contextmanager
def server_process(kind, bundle, sessions, batch, *words):
    """Runs a server in a separate process; yields its address and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if kind == "ray":
        command = [sys.executable, str(_HERE.parent / "examples" / "serve.py"), str(bundle)]
        options = ["--name", "model", "--cpus", "0", "--replicas", str(sessions)]
    else:
        command = [sys.executable, "-m", "keras_transformer.export.commands.main", "serve", f"model={bundle}"]
        options = ["--sessions", str(sessions)]
    command += [*map(str, words), *options, "--port", str(port), "--max-batch-size", str(batch)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(f"{address}/health", process)
            yield address, process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _wait(address, process, seconds=120):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if process.poll() is not None:
            raise RuntimeError("the server ended during its start")
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.3)
    raise TimeoutError(f"no server at {address}")


def bodies(folder, bundle, images):
    """Files of bodies by kind of request, each with its path and header."""
    arrays = load(bundle).example(batch=images)
    nested = {name: array.tolist() for name, array in arrays.items()}
    tensors = [
        {"name": name, "datatype": DATATYPES[array.dtype.name], "shape": array.shape, "parameters": _size(array)}
        for name, array in arrays.items()
    ]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    found = {
        "json": ("/v1/models/model:predict", json.dumps({"inputs": nested}).encode(), []),
        "binary": (
            "/v2/models/model/infer",
            head + b"".join(array.tobytes() for array in arrays.values()),
            ["--header", f"Inference-Header-Content-Length={len(head)}"],
        ),
    }
    written = {}
    for kind, (path, content, words) in found.items():
        file = pathlib.Path(folder, f"{kind}_{images}")
        file.write_bytes(content)
        written[kind] = (path, str(file), words)
    return {**written, "ray": written["binary"]}


def _size(array):
    return {"binary_data_size": array.nbytes}


def drive(address, body, connections, seconds, rate=None):
    """Returns the output of `http_load.py`."""
    path, file, words = body
    words = [f"{address}{path}", file, *words, "--connections", str(connections), "--seconds", str(seconds)]
    words += [] if rate is None else ["--rate", str(rate)]
    command = [sys.executable, str(_HERE / "http_load.py"), *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def milliseconds(seconds, share):
    """Returns a percentile in milliseconds."""
    return round(1000 * statistics.quantiles(seconds, n=100, method="inclusive")[round(100 * share) - 1], 2)


def report(table, kind, sessions, images, per_second, seconds, share=None, refused=0):
    p50, p99 = milliseconds(seconds, 0.5), milliseconds(seconds, 0.99)
    table.add(
        what=kind,
        sessions=sessions,
        images=images,
        requests_s=round(per_second, 1),
        share=None if share is None else f"{share:.0%}",
        p50_ms=p50,
        p99_ms=p99,
        p99_p50=round(p99 / p50, 1),
        refused=refused,
    )


def refusals(found):
    return sum(found["statuses"].values()) - len(found["latencies"])


def measure(table, bundle, folder, kind, sessions, images, options):
    """Adds a row of the loop, and one of a server. The loop runs before and after: other processes may have come or gone."""
    seconds, body = options.seconds, bodies(folder, bundle, images)[kind]
    before, calls = bare(bundle, sessions, images, seconds)
    with server(kind, bundle, sessions, max(images, options.max_batch)) as address:
        connections = 2 * sessions * max(1, options.max_batch // images)
        drive(address, body, connections, min(seconds, 2))  # Warm-up.
        found = drive(address, body, connections, seconds)
        rate = len(found["latencies"]) / found["seconds"]
        steady = drive(address, body, 8 * connections, seconds, 0.8 * rate)
    after, more = bare(bundle, sessions, images, seconds)
    most = (before + after) / 2 / images
    report(table, "bare loop", sessions, images, most, calls + more)
    report(table, kind, sessions, images, rate, steady["latencies"], rate / most, refusals(found) + refusals(steady))


def overload(table, bundle, folder, seconds):
    """More connections than the queue holds, then a single one."""
    body = bodies(folder, bundle, 1)["binary"]
    with server("binary", bundle, 1, 8, "--max-waiting", 8) as address:
        for kind, connections in (("calm", 4), ("overloaded", 128), ("calm again", 4)):
            found = drive(address, body, connections, seconds)
            rate = len(found["latencies"]) / found["seconds"]
            report(table, kind, 1, 1, rate, found["latencies"], refused=refusals(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=pathlib.Path, help="bundle of a model of arrays; default: a new one")
    parser.add_argument("--servers", nargs="+", default=["binary", "json", "ray"], choices=("binary", "json", "ray"))
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--images", type=int, nargs="+", default=[1, 8], help="examples of a request")
    parser.add_argument(
        "--max-batch", type=int, default=1, help="largest number of examples of a call, if not of a request"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="time per measurement")
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--tiny", action="store_true", help="smoke test with a tiny network")
    options = parser.parse_args()
    table = Table(
        f"{os.cpu_count()} cores shared by servers, replicas and clients",
        versions("keras-transformer", "ray", "onnxruntime"),
    )
    with tempfile.TemporaryDirectory() as folder:
        bundle = options.bundle or pathlib.Path(folder, "bundle")
        if options.bundle is None:
            export_model(bundle, options.tiny)
        for sessions in options.sessions:
            for images in options.images:
                for kind in options.servers:
                    measure(table, bundle, folder, kind, sessions, images, options)
        overload(table, bundle, folder, options.seconds)
    table.note("share: requests per second as a share of those of the bare loop, before and after in the same run.")
    table.note("p50, p99: of the loop's calls; of a server at 80 % of its requests per second, sent in even steps.")
    table.note("refused: answers with another status than 200; while overloaded, 429.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
