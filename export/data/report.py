"""The result of an export: the files and their differences from the Keras model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from keras_transformer.export.data.integer_share import IntegerShare
from keras_transformer.export.data.parity import Parity, TwinRecord
from keras_transformer.export.data.tables import Part, Table, Verdict, html_of, plain
from keras_transformer.export.data.target_result import TargetResult
from keras_transformer.utils.types import JsonObject


@dataclasses.dataclass
class Artifact:
    """The files of one format.

    Args:
        format: name of the format.
        path: the file or directory, absolute.
        size: bytes.
        seconds: time taken to write and verify it.
        parity: list of `Parity`, one per signature and output.
        probes: number of probes.
        float_size: bytes of the float files that were quantized, or None.
        evaluation: dict of "score_float", "score" and "agreement", as `evaluation.check_loss` returns it, or None.
        behavior: dict of the figures of `Behavior`, of a quantized language model; or of those of `ClassChanges`, of a
            classifier; or None.
        preprocessing: dict of the name of each input that preprocessing reads to where it is computed, "in the file" or "in
            front of the file"; or None.
        known_differences: what the files compute otherwise than Keras for unusual numbers, a text each.
        rounded: number of weights that are quantized, or None where that is not known.
        integers: `IntegerShare` of quantized files, or None where they are not read.
    """

    format: str
    path: str
    size: int
    seconds: float
    parity: list[Parity]
    probes: int
    float_size: int | None = None
    evaluation: JsonObject | None = None
    behavior: dict[str, float] | None = None
    preprocessing: dict[str, str] | None = None
    known_differences: tuple[str, ...] = ()
    rounded: int | None = None
    integers: IntegerShare | None = None

    @property
    def ratio(self) -> float:
        """The largest ratio of all outputs."""
        return max((each.ratio for each in self.parity), default=0.0)

    @property
    def share(self) -> float:
        """The largest share of what is allowed, of all outputs."""
        return max((each.share for each in self.parity), default=0.0)

    @property
    def difference(self) -> float:
        """The largest absolute difference of all outputs."""
        return max((each.difference for each in self.parity), default=0.0)


@dataclasses.dataclass(repr=False)
class Report:
    """Result of `export` or of `verify`.

    Args:
        directory: the bundle, absolute.
        artifacts: dict of format name to `Artifact`.
        tolerance: the share of the scale that no difference may exceed.
        target: `TargetResult` of an export for an accelerator, or None.
        domain: lines that say for which values and sizes files were compared with Keras.
        twin: `TwinRecord`, where the model that was exported is not the one that was handed over, or None.

    Example:

    >>> report = Report("/tmp/bundle", {}, tolerance=1e-5)
    >>> report.to_dict()["tolerance"]
    1e-05
    """

    directory: str
    artifacts: dict[str, Artifact]
    tolerance: float
    target: TargetResult | None = None
    domain: list[str] = dataclasses.field(default_factory=list[str])
    twin: TwinRecord | None = None

    def __getitem__(self, format: str) -> Artifact:
        return self.artifacts[format]

    def __str__(self) -> str:
        return plain(self.parts())

    def __repr__(self) -> str:
        return f"{plain(self.parts())}\n{self.verdict()}"

    def _repr_html_(self) -> str:
        return html_of([*self.parts(), self.verdict()])

    def parts(self) -> list[Part]:
        """Returns what is printed: the directory, a table, and what its figures are."""
        rows: list[tuple[str, ...]] = [("format", "size", "difference", "of scale", "of allowed", "probes", "seconds")]
        for each in self.artifacts.values():
            figures = (
                f"{each.difference:.1e}",
                f"{each.ratio:.1e}",
                f"{each.share:.2f}",
                str(each.probes),
                f"{each.seconds:.1f}",
            )
            rows.append((each.format, readable_size(each.size), *figures))
        for title, cell in _QUANTIZED.items():
            cells = [cell(each) for each in self.artifacts.values()]
            if any(cells):
                rows = [(*row, more or "-") for row, more in zip(rows, [title, *cells], strict=True)]
        rows[1:1] = self._twin_row(len(rows[0]))
        note = "largest difference from Keras, as a share of the scale and of what is allowed"
        table = Table(rows[0], rows[1:], texts=("format",))
        parts: list[Part] = [self.directory, table, note, *self._unshown(), *self.domain, *self._preprocessing()]
        parts += self._differences()
        return parts if self.target is None else [*parts, str(self.target)]

    def _twin_row(self, length: int) -> list[tuple[str, ...]]:
        """The row of the model that was exported, if that is not the one that was handed over."""
        if self.twin is None:
            return []
        worst = self.twin.largest
        figures = (f"{worst.difference:.1e}", f"{worst.ratio:.1e}", f"{self.twin.share:.2f}", str(self.twin.probes))
        return [("twin", "-", *figures, *("-" for _ in range(length - 6)))]

    def _unshown(self) -> list[str]:
        """A line for what the figures do not show."""
        lines = [] if self.twin is None else [f"twin: {', '.join(self.twin.steps)}, against the model that was given"]
        constant = {each.output: None for one in self.artifacts.values() for each in one.parity if each.is_constant}
        lines += [f"output '{name}' is constant over all probes: nothing was shown; {_SHOWS}" for name in constant]
        return lines + [f"{each.format}: {each.integers}" for each in self.artifacts.values() if each.integers]

    def _preprocessing(self) -> list[str]:
        """A line for each format: where the preprocessing of which inputs is computed."""
        lines: list[str] = []
        for each in self.artifacts.values():
            ways = each.preprocessing or {}
            parts = [
                f"{', '.join(name for name in ways if ways[name] == way)} {way}" for way in dict.fromkeys(ways.values())
            ]
            lines += [f"preprocessing, {each.format}: {'; '.join(parts)}"] if parts else []
        return lines

    def _differences(self) -> list[str]:
        """A line for each difference from Keras that is known beforehand."""
        return [f"{each.format} {text}" for each in self.artifacts.values() for text in each.known_differences]

    def verdict(self) -> Verdict:
        """Returns the last line of a command: in which runtimes the files were compared with Keras."""
        count = len(self.artifacts)
        runtimes = f"{count} runtimes" if count > 1 else "one runtime"
        return Verdict(f"proven in {runtimes}: {', '.join(self.artifacts)}")

    def to_dict(self) -> JsonObject:
        """Returns the report as dicts, lists and numbers."""
        return dataclasses.asdict(self) | {"twin": None if self.twin is None else self.twin.to_dict()}

    @classmethod
    def from_dict(cls, record: JsonObject) -> Report:
        """Returns the report of a dict from `to_dict`."""
        artifacts = {
            name: dataclasses.replace(
                Artifact(**each),
                parity=[Parity(**parity) for parity in each["parity"]],
                integers=each.get("integers") and IntegerShare(**each["integers"]),
            )
            for name, each in record["artifacts"].items()
        }
        target = record.get("target") and TargetResult.from_dict(record["target"])
        twin = record.get("twin") and TwinRecord.from_dict(record["twin"])
        return cls(record["directory"], artifacts, record["tolerance"], target, record.get("domain", []), twin)


class Reports(dict[str, Report]):
    """Reports of several bundles by the names of their folders; prints as their tables.

    Example:

    >>> print(Reports(int8=Report("/tmp/bundles/int8", {}, 0.3)).to_dict()["int8"]["tolerance"])
    0.3
    """

    def __str__(self) -> str:
        return plain(self.parts())

    def __repr__(self) -> str:
        return f"{plain(self.parts())}\n{self.verdict()}"

    def _repr_html_(self) -> str:
        return html_of([*self.parts(), self.verdict()])

    def parts(self) -> list[Part]:
        """Returns what is printed: the parts of each report, with an empty line between them."""
        each = [report.parts() for report in self.values()]
        return [part for index, parts in enumerate(each) for part in ([""] if index else []) + parts]

    def verdict(self) -> Verdict:
        """Returns the last line of a command: how many bundles were compared with Keras."""
        return Verdict(f"{len(self)} bundles, each proven in its runtimes: {', '.join(self)}")

    def to_dict(self) -> JsonObject:
        """Returns the reports as dicts, lists and numbers."""
        return {name: report.to_dict() for name, report in self.items()}

    @classmethod
    def from_dict(cls, record: JsonObject) -> Reports:
        """Returns the reports of a dict from `to_dict`."""
        return cls({name: Report.from_dict(each) for name, each in record.items()})


def _evaluated(name: str, format: str) -> Callable[[Artifact], str | None]:
    def cell(artifact: Artifact) -> str | None:
        value = ((artifact.evaluation or {}) | (artifact.behavior or {})).get(name)
        return None if value is None else format.format(value)

    return cell


def _stays(counted: str) -> Callable[[Artifact], str | None]:
    """The share of the most likely tokens, or classes, that stay, by the figure in which a `behavior` counts them."""

    def cell(artifact: Artifact) -> str | None:
        behavior = artifact.behavior or {}
        return f"{behavior['top_share']:.1%}" if counted in behavior else None

    return cell


# What shows that an output is right.
_SHOWS = "train the model or pass `probes`"
# Columns of quantized artifacts only.
_QUANTIZED: dict[str, Callable[[Artifact], str | None]] = {
    "of float": lambda each: f"{each.size / each.float_size:.3f}" if each.float_size else None,
    "agreement": _evaluated("agreement", "{:.2%}"),
    "float score": _evaluated("score_float", "{:.4g}"),
    "score": _evaluated("score", "{:.4g}"),
    "perplexity": _evaluated("perplexity", "x {:.4f}"),
    "divergence": _evaluated("divergence", "{:.4f}"),
    "same token": _stays("tokens"),
    "same class": _stays("predictions"),
}


def readable_size(size: float) -> str:
    """Returns a number of bytes as text, such as `3.4 MB`."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
