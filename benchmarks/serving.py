"""The Ray Serve application of a bundle under load, against a bare loop of ONNX Runtime with the same model and run.

    pip install ".[serve]"
    python benchmarks/serving.py                        # a Vision Transformer of 6 x 128 over 32 x 32 images
    python benchmarks/serving.py --bundle DIR           # any bundle of arrays

A separate process sends requests of one example over persistent connections, twice as many as can be computed at once. The
loop runs one thread per replica over batches of the maximum size, without network. Server, replicas and clients share the
cores of this machine, unlike in production, so the measured overhead is an upper bound.
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
def server(bundle, *words):
    """Runs `examples/serve.py` in a separate process; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(_HERE.parent / "examples" / "serve.py"), str(bundle), "--name", "model"]
    command += ["--port", str(port), "--cpus", "0", *map(str, words)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(f"{address}/health", process)
            yield address
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


def drive(address, body, connections, seconds):
    """Returns the output of `http_load.py`."""
    words = [address, str(body), "--connections", str(connections), "--seconds", str(seconds)]
    command = [sys.executable, str(_HERE / "http_load.py"), *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def milliseconds(seconds, share):
    """Returns a percentile in milliseconds."""
    return round(1000 * statistics.quantiles(seconds, n=100, method="inclusive")[round(100 * share) - 1], 2)


def report(table, kind, replicas, batch, per_second, seconds, lost=None, refused=0):
    table.add(
        what=kind,
        replicas=replicas,
        max_batch=batch,
        per_second=round(per_second, 1),
        p50_ms=milliseconds(seconds, 0.5),
        p99_ms=milliseconds(seconds, 0.99),
        lost=None if lost is None else f"{lost:.0%}",
        refused=refused,
    )


def measure(table, bundle, body, replicas, batch, seconds):
    """Adds one row of the loop and one of the server."""
    most, calls = bare(bundle, replicas, batch, seconds)
    report(table, "bare loop", replicas, batch, most, calls)
    with server(bundle, "--replicas", replicas, "--max-batch-size", batch) as address:
        url = f"{address}/v1/models/model:predict"
        connections = 2 * replicas * batch
        drive(url, body, connections, min(seconds, 2))  # Warm-up.
        found = drive(url, body, connections, seconds)
        answered = len(found["latencies"])
        refused = sum(found["statuses"].values()) - answered
        rate = answered / found["seconds"]
        report(table, "ray serve", replicas, batch, rate, found["latencies"], 1 - rate / most, refused)


def overload(table, bundle, body, seconds):
    """More connections than the queue holds, then a single one."""
    with server(bundle, "--replicas", 1, "--max-batch-size", 8, "--max-waiting", 8) as address:
        url = f"{address}/v1/models/model:predict"
        for kind, connections in (("calm", 4), ("overloaded", 128), ("calm again", 4)):
            found = drive(url, body, connections, seconds)
            answered = len(found["latencies"])
            refused = {status: count for status, count in found["statuses"].items() if status != "200"}
            report(table, kind, 1, 8, answered / found["seconds"], found["latencies"], refused=refused or 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=pathlib.Path, help="bundle of a model of arrays; default: a new one")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=5.0, help="time per measurement")
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--tiny", action="store_true", help="smoke test with a tiny network")
    options = parser.parse_args()
    table = Table(
        f"One example per request, {os.cpu_count()} cores shared by servers, replicas and clients",
        versions("keras-transformer", "ray", "onnxruntime"),
    )
    with tempfile.TemporaryDirectory() as folder:
        bundle = options.bundle or pathlib.Path(folder, "bundle")
        if options.bundle is None:
            export_model(bundle, options.tiny)
        body = pathlib.Path(folder, "body.json")
        inputs = {name: array.tolist() for name, array in load(bundle).example(batch=1).items()}
        body.write_text(json.dumps({"inputs": inputs}))
        for replicas in options.replicas:
            for batch in options.batches:
                measure(table, bundle, body, replicas, batch, options.seconds)
        overload(table, bundle, body, options.seconds)
    table.note("lost: 1 - examples per second of the server / those of the bare loop in the same run.")
    table.note("refused: answers with another status than 200; while overloaded, 429.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
