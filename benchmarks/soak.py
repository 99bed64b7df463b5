"""A server under mixed load for a long time: its memory, threads and open files, minute by minute.

    pip install ".[serve]"
    python benchmarks/soak.py --minutes 30 --json soak.json

One `keras-transformer serve` process holds a classifier of images and a language model. Clients send without a pause, one
connection for each kind of request: arrays as binary tensors; whole texts; streams that are read to the end; streams whose
client leaves after a few pieces; bodies that are no requests. A row is printed every minute: the resident memory of the
server, its threads and file descriptors, and the answers of the minute. In the first third caches and allocators reach
their size; the note below the table has the growth after it. Reads `/proc`, so it runs on Linux only.
"""

import argparse
import collections
import json
import os
import pathlib
import tempfile
import threading
import time
import urllib.parse
from http.client import HTTPConnection, HTTPException

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from measure import Table, versions
from serving import bodies, export_model, run_lines, server_process

KINDS = ("arrays", "texts", "streams", "left", "wrong")
_SETTLED = 1 / 3


def export_language_model(directory):
    """Exports a small language model over bytes, in a process of its own."""
    lines = [
        "import keras",
        "from keras_transformer import models, tasks, text",
        "from keras_transformer.export import export",
        "keras.utils.set_random_seed(0)",
        "backbone = models.Decoder(models.Size(2, 64, 4, 128), 260, max_sequence_length=256)",
        f"export(tasks.LanguageModel(backbone, tokenizer=text.Bytes()), {str(directory)!r}, formats=['onnx'])",
    ]
    run_lines(lines)


class Clients:
    """Threads that send requests of one kind each until they are told to stop.

    Args:
        address: str: URL of the server.
        array_body: (path, file, words) of a request for arrays.

    Attributes:
        statuses: Counter of (kind, status); status 0 is a broken connection.
    """

    def __init__(self, address, array_body):
        self._address = urllib.parse.urlsplit(address)
        self._path, file, words = array_body
        self._arrays = pathlib.Path(file).read_bytes()
        self._headers = dict(each.split("=", 1) for each in words if "=" in each)
        self.statuses = collections.Counter()
        self._is_over = False
        sends = (self._send_arrays, self._text, self._stream, self._leave, self._wrong)
        pairs = zip(KINDS, sends, strict=True)
        self._threads = [threading.Thread(target=self._repeat, args=each, daemon=True) for each in pairs]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *error):
        self._is_over = True
        for each in self._threads:
            each.join()

    def _repeat(self, kind, send):
        random = np.random.default_rng(len(kind))
        connection = None
        while not self._is_over:
            try:
                connection = connection or HTTPConnection(self._address.hostname, self._address.port, timeout=60)
                status, is_kept = send(connection, random)
            except (OSError, HTTPException):
                status, is_kept = 0, False
            self.statuses[kind, status] += 1
            if not is_kept:
                if connection is not None:
                    connection.close()
                connection = None

    def _send_arrays(self, connection, random):
        connection.request("POST", self._path, self._arrays, self._headers)
        return self._whole(connection)

    def _text(self, connection, random):
        return self._ask(connection, random, stream=False)

    def _stream(self, connection, random):
        return self._ask(connection, random, stream=True)

    def _leave(self, connection, random):
        return self._ask(connection, random, stream=True, pieces=2)

    def _wrong(self, connection, random):
        body = random.bytes(int(random.integers(0, 5000)))
        path = ["/v1/completions", self._path, "/v1/chat/completions"][int(random.integers(3))]
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        time.sleep(0.01)
        return self._whole(connection)

    def _ask(self, connection, random, stream, pieces=None):
        """A completion of a prompt of random letters and length."""
        prompt = random.integers(97, 123, int(random.integers(1, 120))).astype("uint8").tobytes().decode()
        asked = {"model": "writer", "prompt": prompt, "max_tokens": int(random.integers(1, 100)), "stream": stream}
        connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
        if pieces is None:
            return self._whole(connection)
        answer = connection.getresponse()
        for _ in range(pieces):
            answer.readline()
        return answer.status, False

    def _whole(self, connection):
        answer = connection.getresponse()
        answer.read()
        return answer.status, not answer.will_close


def used(pid):
    """The memory, threads and files of a process."""
    lines = (line.split(":", 1) for line in pathlib.Path("/proc", str(pid), "status").read_text().splitlines())
    status = {name: value.split()[0] for name, value in lines if value.strip()}
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return {"MB": round(int(status["VmRSS"]) * 1024 / 1e6, 1), "threads": int(status["Threads"]), "files": files}


def counted(answers):
    """The requests by kind, and those that were refused and that failed."""
    kinds = {kind: sum(count for key, count in answers.items() if key[0] == kind) for kind in KINDS}
    refused = sum(count for (_, status), count in answers.items() if 400 <= status < 500)
    failed = sum(count for (_, status), count in answers.items() if status >= 500 or not status)
    return {**kinds, "refused": refused, "failed": failed}


def growth(table, minutes):
    """Adds the growth after the first third: the difference, and the slope of a straight line."""
    rows = [row for row in table.rows if row["minute"] >= _SETTLED * minutes]
    times, sizes = [row["minute"] for row in rows], [row["MB"] for row in rows]
    slope = 60 * np.polyfit(times, sizes, 1)[0] if len(rows) > 1 else float("nan")
    table.note(
        f"from minute {times[0]:g} to {times[-1]:g}: {sizes[0]:.1f} to {sizes[-1]:.1f} MB, "
        f"{sizes[-1] / sizes[0] - 1:+.1%}; a straight line through the rows has {slope:+.1f} MB an hour"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between rows")
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--tiny", action="store_true", help="smoke test with a tiny classifier")
    options = parser.parse_args()
    table = Table(
        f"a server under mixed load for {options.minutes:g} minutes", versions("keras-transformer", "onnxruntime")
    )
    with tempfile.TemporaryDirectory() as folder:
        classifier, writer = (pathlib.Path(folder, name) for name in ("classifier", "writer"))
        export_model(classifier, options.tiny)
        export_language_model(writer)
        with (
            server_process("binary", classifier, 1, 8, f"writer={writer}") as (address, process),
            Clients(address, bodies(folder, classifier, 1)["binary"]) as clients,
        ):
            start, last = time.monotonic(), collections.Counter()
            while (left := start + 60 * options.minutes - time.monotonic()) > 0:
                time.sleep(min(options.every, left))
                now = clients.statuses.copy()
                new, last = now - last, now
                minute = round((time.monotonic() - start) / 60, 2)
                table.add(minute=minute, **used(process.pid), **counted(new))
    growth(table, options.minutes)
    table.note(
        "arrays, texts, streams, left: requests by kind in the time before the row; refused: 4xx; failed: 5xx, broken."
    )
    table.finish(options.json)


if __name__ == "__main__":
    main()
