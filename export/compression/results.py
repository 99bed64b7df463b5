"""What `compress` found: one row for each candidate."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.tables import Part, Table, plain
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_transformer.utils.types import Path

FLOAT = "float32"


@dataclasses.dataclass(frozen=True)
class Trial:
    """The files of one candidate in one format.

    Args:
        candidate: name.
        format: name of the format.
        nbytes: int. Size of the files.
        score: float. The metric, the larger the better; see `Compression`.
        milliseconds: float or None: a call, of the signature that takes longest.
        reason: str. Why the files were refused; "" if they were not.
    """

    candidate: str
    format: str
    nbytes: int
    score: float
    milliseconds: float | None
    reason: str = ""


def lost(trials: Iterable[Trial], floats: Iterable[Trial]) -> float:
    """The most that the files of a candidate lose against the float files of their formats."""
    scores = {each.format: each.score for each in floats}
    return max(scores[each.format] - each.score for each in trials)


@dataclasses.dataclass(frozen=True)
class Compression:
    """The result of `compress`.

    Args:
        directory: path of the bundle.
        metric: "accuracy" (or another score), "agreement" with the float files, or "perplexity": the negative of the
            perplexity as a multiple of the float model's.
        budget: int. Bytes, or None.
        chosen: name of the candidate that the bundle has.
        trials: list of `Trial`, the float files first.
        max_loss: float: how much less than that of the float files the metric may be, or None.

    Example:

    >>> small = Trial("int8", "onnx", 1_000_000, 0.98, 1.5)
    >>> print(Compression("bundle", "accuracy", 2_000_000, "int8", [small]))
    bundle: int8
    candidate  format    size  accuracy    ms
    int8 *       onnx  1.0 MB      0.98  1.50
    * within 2.0 MB
    """

    directory: str
    metric: str
    budget: int | None
    chosen: str
    trials: list[Trial]
    max_loss: float | None = None

    def __str__(self) -> str:
        return plain(self.parts())

    def parts(self) -> list[Part]:
        """Returns what is printed: the chosen candidate, a table of all, and the limits."""
        head = ("candidate", "format", "size", self.metric, "ms")
        rows = []
        for each in self.trials:
            mark = " *" if self._is_within(each) else ""
            size, score = ("-", "refused") if each.reason else (readable_size(each.nbytes), f"{abs(each.score):.4g}")
            time = "-" if each.milliseconds is None else f"{each.milliseconds:.2f}"
            rows.append((each.candidate + mark, each.format, size, score, time))
        notes = dict.fromkeys(f"{each.candidate}: {each.reason}" for each in self.trials if each.reason)
        end = "\n".join([f"* {' and '.join(self._limits())}", *notes])
        return [f"{self.directory}: {self.chosen}", Table(head, rows, texts=("candidate",)), end]

    def _is_within(self, trial: Trial) -> bool:
        if trial.reason or (self.budget is not None and trial.nbytes > self.budget):
            return False
        floats = [each for each in self.trials if each.candidate == FLOAT]
        return self.max_loss is None or lost([trial], floats) <= self.max_loss

    def _limits(self) -> Iterator[str]:
        if self.budget is not None:
            yield f"within {readable_size(self.budget)}"
        if self.max_loss is not None:
            yield f"loses at most {self.max_loss:g}"

    def plot(self) -> Figure:
        """The metric against the size, a point for each file."""
        from keras_transformer.export.compression.measuring import PERPLEXITY
        from keras_transformer.plots import accuracy_by_size

        rows = [
            {"format": each.format, "mode": each.candidate, "bytes": each.nbytes, "score": abs(each.score)}
            for each in self.trials
            if not each.reason
        ]
        label = "perplexity, as a multiple of the float file's" if self.metric == PERPLEXITY else self.metric
        return accuracy_by_size(rows, label=label)

    def to_dict(self) -> JsonObject:
        """The result as dicts, lists and numbers."""
        return dataclasses.asdict(self)

    def write(self, path: Path) -> None:
        """Writes the result as JSON."""
        pathlib.Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n")
