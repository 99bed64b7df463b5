"""The rounding of a model, measured in a thread of its own while the first files are written."""

from __future__ import annotations

import concurrent.futures
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from keras_transformer.export.verification.rounding import measure_rounding

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.spec.traced import TracedModule


class RoundingInBackground:
    """Measures the rounding of a model beside the caller, from its creation on; a context manager.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from. Without need of its rounding nothing is done.
    """

    def __init__(self, traced: TracedModule, spec: ExportSpec) -> None:
        self._stopped = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future: concurrent.futures.Future[None] | None = None
        if spec.tolerance is None and spec.runs_floats:
            self._future = self._pool.submit(measure_rounding, traced, spec, self._stopped.is_set)

    @property
    def is_pending(self) -> bool:
        """bool: whether the rounding is needed, and was not waited for."""
        return self._future is not None

    def wait(self) -> None:
        """Returns when every probe has its rounding; raises what the measurement raised."""
        if self._future is not None:
            self._future.result()
            self._future = None

    def __enter__(self) -> RoundingInBackground:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._pool.shutdown()
