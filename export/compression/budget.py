"""What a compressed model may cost: bytes, or a loss."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from keras_transformer.export.compression.results import FLOAT, Trial, lost
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.errors import QuantizationError

_UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9}


@dataclasses.dataclass(frozen=True)
class Budget:
    """Limits of the files of each format.

    Args:
        nbytes: int, or None for any size.
        loss: float: how much less than that of the float files of a format the metric may be; or None.

    With a loss, the smallest files that keep it are the best; else those with the best metric.
    """

    nbytes: int | None
    loss: float | None = None

    @classmethod
    def of(cls, size: int | str | None, loss: float | None) -> Budget:
        """From what a user gives.

        Raises:
            QuantizationError: neither is given, or one is no limit.
        """
        if size is None and loss is None:
            raise QuantizationError("compress needs a budget, such as '20MB', or max_loss")
        if loss is not None and not 0 <= loss < float("inf"):
            raise QuantizationError(f"max_loss must be a number >= 0. Received: {loss!r}")
        return cls(None if size is None else parse_size(size), loss)

    def allows(self, nbytes: int) -> bool:
        """Whether files of a size fit."""
        return self.nbytes is None or nbytes <= self.nbytes

    def best(self, trials: Iterable[Trial]) -> str:
        """The best candidate whose files all fit, by its worst format.

        Raises:
            QuantizationError: there is none; the message has the nearest.
        """
        whole = _accepted(trials)
        sizes = {name: max(trial.nbytes for trial in each) for name, each in whole.items()}
        fitting = [name for name, size in sizes.items() if self.allows(size)]
        if not fitting:
            smallest = min(sizes, key=lambda name: sizes[name])
            raise QuantizationError(
                f"nothing fits {readable_size(self.nbytes or 0)}: the smallest files, {smallest}, have "
                f"{readable_size(sizes[smallest])}"
            )
        if self.loss is None:
            return max(fitting, key=lambda name: (min(trial.score for trial in whole[name]), -sizes[name]))
        losses = {name: lost(whole[name], whole[FLOAT]) for name in fitting}
        kept = [name for name in fitting if losses[name] <= self.loss]
        if not kept:
            nearest = min(fitting, key=lambda name: losses[name])
            raise QuantizationError(
                f"nothing that fits loses at most {self.loss:g}: the nearest, {nearest}, loses {losses[nearest]:.4g}"
            )
        return min(kept, key=lambda name: (sizes[name], losses[name]))


def _accepted(trials: Iterable[Trial]) -> Mapping[str, list[Trial]]:
    """The trials by candidate, of those that no format refused."""
    by_name: dict[str, list[Trial]] = {}
    for each in trials:
        by_name.setdefault(each.candidate, []).append(each)
    return {name: each for name, each in by_name.items() if not any(trial.reason for trial in each)}


def parse_size(size: int | str) -> int:
    """Bytes from a number, or from a text such as "20MB"; a kB has 1,000.

    Raises:
        QuantizationError: it is no positive size.

    Example:

    >>> parse_size("1.5 MB"), parse_size(2048)
    (1500000, 2048)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(size).lower())
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise QuantizationError(f"budget must be a number of bytes, or a size such as '20MB'. Received: {size!r}")
    return int(float(found[1]) * _UNITS[found[2]])
