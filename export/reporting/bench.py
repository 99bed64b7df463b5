"""Benchmark of a bundle in each runtime: latency, throughput, peak memory, size and loading time.

Each runtime has a process of its own, so that its memory is measured separately. The processes alternate, so that other
load on the machine affects all of them.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.tables import Part, Table, Verdict, plain
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import files_of, get_format
from keras_transformer.utils.types import JsonObject, Path
from keras_transformer.version import DISTRIBUTION, __version__

_CALLS = 5
_COLUMNS = ("backend", "signature", "sizes", "p50", "p90", "p99", "per second", "load", "memory", "on disk")


class Row(NamedTuple):
    """Measurements of one signature in one runtime.

    Args:
        backend: name of the runtime.
        signature: name of the signature; of a language model "prefill", from the prompt to the first logits, or "decode".
        sizes: dict of axis name to size.
        p50, p90, p99: percentiles of the time of a call, in milliseconds.
        per_second: examples, or tokens of a language model, a second, at the median.
        unit: "examples" or "tokens".
        load_seconds: time to check and load the artifact, without the imports.
        peak_memory: bytes, of the whole process.
        size: bytes of the files that are read.
    """

    backend: str
    signature: str
    sizes: dict[str, int]
    p50: float
    p90: float
    p99: float
    per_second: float
    unit: str
    load_seconds: float
    peak_memory: int
    size: int


class Benchmark(NamedTuple):
    """The measurements of a bundle; `str()` is a table.

    Args:
        bundle: path.
        rows: list of `Row`.
        calls: number of calls of each row.
        versions: dict of package to version.
    """

    bundle: str
    rows: list[Row]
    calls: int
    versions: dict[str, str]

    def __str__(self) -> str:
        return plain(self.parts())

    def parts(self) -> list[Part]:
        """Returns what is printed: the bundle, the versions, a table, and what its figures are."""
        head = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        units = " or ".join(dict.fromkeys(row.unit for row in self.rows))
        note = f"milliseconds of {self.calls} calls, runtimes interleaved; per second: {units}; memory: peak of the process"
        table = Table(_COLUMNS, [_cells(row) for row in self.rows], texts=("backend", "signature", "sizes"))
        return [self.bundle, head, "", table, note]

    def verdict(self) -> Verdict:
        """Returns the last line of a command: the runtime with the shortest median of the last signature, and the others."""
        last = self.rows[-1].signature
        rows = sorted((row for row in self.rows if row.signature == last), key=lambda row: row.p50)
        what = f"{last}: " if len({row.signature for row in self.rows}) > 1 else ""
        others = "".join(f", {row.backend} {row.p50 / rows[0].p50:.1f} times as long" for row in rows[1:])
        return Verdict(
            f"{what}{rows[0].backend} is fastest, {rows[0].p50:.2f} ms{others}"
            if others
            else f"{what}{rows[0].backend} takes {rows[0].p50:.2f} ms"
        )

    def to_dict(self) -> JsonObject:
        """Returns the measurements as dicts, lists and numbers."""
        return {**self._asdict(), "rows": [row._asdict() for row in self.rows]}


def bench_bundle(
    bundle: Path,
    backends: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    rounds: int = 20,
    num_threads: int | None = None,
    progress: Callable[[str], object] | None = None,
) -> Benchmark:
    """Measures every signature of a bundle in its runtimes; for a language model, prefill and decoding steps.

    Args:
        bundle: path of the bundle directory.
        backends: names of runtimes. None for all of the bundle.
        sizes: dict of axis name to size, such as `{"batch": 8, "length": 128}`; the default is the size in the
            smallest probe of the bundle; for a language model, 1 and 32.
        rounds: int >= 1: rounds of five calls of each signature in each runtime. Default 20.
        num_threads: threads for one call. None for all cores.
        progress: function that is called with what is done next, a line of text, or None.

    Returns:
        A `Benchmark`.

    Raises:
        InvalidBundleError: the bundle does not exist or lacks a file.
        ExportError: a runtime fails, or no signature has an axis of `sizes`.

    Example:

    >>> import keras
    >>> from keras_transformer.export import bench_bundle, export
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> [row] = bench_bundle("/tmp/keras_transformer_doctest", sizes={"batch": 8}, rounds=1).rows
    >>> row.signature, row.sizes, 0 < row.p50 <= row.p99
    ('serve', {'batch': 8}, True)
    """
    if not isinstance(rounds, int) or rounds < 1:
        raise ExportError(f"rounds must be a positive integer. Received: {rounds!r}")
    manifest = read_manifest(bundle)
    names = list(backends or manifest.artifacts)
    for name in names:
        get_format(name)
        manifest.artifact(name)  # Raises where there is none.
    report = progress or (lambda line: None)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_Worker(bundle, name, sizes or {}, num_threads)) for name in names]
        for worker in workers:  # One after another: loading is measured too.
            report(f"loading {worker.backend}")
            worker.load()
        report(f"measuring {', '.join(names)}: {rounds * _CALLS} calls each")
        for index in range(rounds):
            for offset in range(len(workers)):
                workers[(index + offset) % len(workers)].run_round()
        size = {name: sum(manifest.files[file].size for file in files_of(manifest, name)) for name in names}
        rows = [row for worker in workers for row in worker.rows(size[worker.backend])]
    return Benchmark(str(pathlib.Path(bundle).resolve()), rows, rounds * _CALLS, _versions(names))


class _Worker:
    """A process of one runtime; it replies to each line of JSON with a line of JSON. See `bench_worker`."""

    def __init__(self, bundle: Path, backend: str, sizes: Mapping[str, int], num_threads: int | None) -> None:
        self.backend = backend
        self._request = {"bundle": str(bundle), "backend": backend, "sizes": sizes, "num_threads": num_threads}

    def __enter__(self) -> _Worker:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "keras_transformer.export.reporting.bench_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdin is not None  # A pipe.
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()
        if error[0] is not None:
            self._process.kill()
        self._process.wait()
        self._stdout.close()
        self._log.close()

    def load(self) -> None:
        self._loaded = self._ask(self._request)
        self._seconds: list[list[float]] = [[] for _ in self._loaded["cases"]]

    def run_round(self) -> None:
        for kept, new in zip(self._seconds, self._ask({"calls": _CALLS})["seconds"], strict=True):
            kept += new

    def rows(self, size: int) -> Iterator[Row]:
        memory = self._ask({"calls": 0})["peak_memory"]
        for case, seconds in zip(self._loaded["cases"], self._seconds, strict=True):
            p50, p90, p99 = (float(value) for value in np.percentile(np.array(seconds) * 1e3, (50, 90, 99)))
            figures = (p50, p90, p99, case["count"] / p50 * 1e3, case["unit"])
            yield Row(self.backend, case["name"], case["sizes"], *figures, self._loaded["seconds"], memory, size)

    def _ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        try:
            self._stdin.write(json.dumps(question) + "\n")
            self._stdin.flush()
        except BrokenPipeError:
            pass  # It has ended; its last reply or its status follows.
        line = self._stdout.readline()
        if not line:
            raise ExportError(f"{self.backend}: the process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ExportError(answer["error"])
        return answer


def _versions(backends: Sequence[str]) -> dict[str, str]:
    found = {DISTRIBUTION: __version__}
    for name in (*(get_format(backend).library.distribution for backend in backends), "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _cells(row: Row) -> tuple[str, ...]:
    sizes = ", ".join(f"{axis}={size}" for axis, size in row.sizes.items()) or "fixed"
    times = [f"{value:.2f}" for value in (row.p50, row.p90, row.p99)]
    memory = (readable_size(row.peak_memory), readable_size(row.size))
    return (
        *(row.backend, row.signature, sizes, *times, f"{row.per_second:,.0f}"),
        *(f"{row.load_seconds:.2f} s", *memory),
    )
