"""The process of an untrusted bundle, from the side of its parent."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

from keras_transformer.export.errors import ExportError, InvalidBundleError, RunError
from keras_transformer.export.loading.isolated import messages
from keras_transformer.export.loading.isolated.isolation import Isolation
from keras_transformer.generation.errors import GenerationError
from keras_transformer.utils.errors import on_failure, one_line

_CHUNK = 2**20
# Variables that Python and the runtimes need; others may be secrets.
_VARIABLES = (
    "PATH",
    "PYTHON",
    "LD_LIBRARY_PATH",
    "DYLD_",
    "HOME",
    "LANG",
    "LC_",
    "TMPDIR",
    "TF_",
    "OMP_",
    "VIRTUAL_ENV",
)


class IsolatedProcess:
    """A process with a bundle, which runs one call after another.

    If it ends, or a call takes too long, the call raises an error and the next one starts it again.

    Args:
        arguments: the arguments of `load`, without `isolated`.
        isolation: `Isolation`.

    Raises:
        ExportError: the operating system has no such limits; or the error of `load`.
        InvalidBundleError: the process ends while it loads the bundle, or that takes too long.
    """

    def __init__(self, arguments: dict[str, Any], isolation: Isolation) -> None:
        if os.name != "posix":
            raise ExportError("isolated needs the limits of processes of Linux or macOS")
        self._arguments, self._isolation = arguments, isolation
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        with self._lock:
            self._start()

    def ask(self, method: str, *values: object, **options: object) -> Any:
        """The result of a method of the worker.

        Raises:
            RunError: the process ended, or the call took too long.
            ExportError, GenerationError: what the model raised.
        """
        origin = self._arguments["backend"], self._arguments["signature"] or "(whole model)"
        with self._lock:
            if self._process is None:
                self._start()
            try:
                return self._exchange((method, values, options), self._isolation.seconds)
            except _Ended as error:
                raise RunError(*origin, error) from None

    def close(self) -> None:
        """Ends the process. A further call would start it again."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
        environment |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "keras_transformer.export.loading.isolated.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]  # They are pipes.
        self._finalizer = weakref.finalize(self, _end, self._process)
        try:
            with on_failure(self._stop):
                self._exchange({**self._arguments, "isolated": self._isolation}, self._isolation.loading_seconds)
        except _Ended as error:
            name = f"{self._arguments['backend']} artifact of '{self._arguments['bundle']}'"
            raise InvalidBundleError(f"{name} cannot be loaded: {error}") from None

    def _exchange(self, request: object, seconds: float) -> Any:
        """Sends a request and reads the reply."""
        assert self._process is not None
        pipes = _Pipes(self._process, time.monotonic() + seconds, seconds)
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)  # Where its reply is still to come, or is nonsense.
            try:
                pipes.write(pickle.dumps(request))
                reply = messages.decoded(pipes.read, self._isolation.memory_bytes)
            except (ExportError, GenerationError):
                stack.pop_all()  # The model's own error: the process goes on.
                raise
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise _Ended(f"its process replied nonsense: {one_line(error)}") from None
            stack.pop_all()
            return reply

    def _stop(self) -> None:
        if self._process is not None:
            self._finalizer()
            self._process = None


class _Ended(Exception):
    """The process ended or was ended."""


class _Pipes:
    """The pipes of a process, until a point in time."""

    def __init__(self, process: subprocess.Popen[bytes], end: float, seconds: float) -> None:
        self._process, self._end, self._seconds = process, end, seconds
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()

    def write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            self._wait([], [self._stdin])
            try:
                view = view[os.write(self._stdin, view[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._ended() from None

    def read(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            self._wait([self._stdout], [])
            try:
                part = os.read(self._stdout, min(count - len(content), _CHUNK))
            except BlockingIOError:
                continue
            if not part:
                raise self._ended()
            content += part
        return bytes(content)

    def _wait(self, readable: list[int], writable: list[int]) -> None:
        left = self._end - time.monotonic()
        if left <= 0 or not any(select.select(readable, writable, [], left)):
            raise _Ended(f"it took longer than {self._seconds:g} s")

    def _ended(self) -> _Ended:
        code = self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        return _Ended(f"its process ended {how}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
