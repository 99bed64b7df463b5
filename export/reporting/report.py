"""What an export made and how closely each file computes what the Keras model computes."""

import dataclasses


@dataclasses.dataclass
class Parity:
    """Largest difference of one output over all probes.

    Args:
        signature: name of the signature.
        output: name of the output.
        difference: largest absolute difference from the reference.
        scale: largest absolute reference value on the probe where the ratio was worst.
        ratio: the worst `difference / scale` of any probe.
    """

    signature: str
    output: str
    difference: float
    scale: float
    ratio: float


@dataclasses.dataclass
class Artifact:
    """One written format.

    Args:
        format: name of the format.
        path: the file or directory, absolute.
        size: bytes.
        seconds: time taken to write and verify it.
        parity: list of `Parity`, one per signature and output.
        probes: how many probes were run.
        float_size: bytes of the float files that were quantized, or None.
        evaluation: dict of "score_float", "score" and "agreement", as `evaluation.check_loss` returns it, or None.
    """

    format: str
    path: str
    size: int
    seconds: float
    parity: list
    probes: int
    float_size: int | None = None
    evaluation: dict | None = None

    @property
    def ratio(self):
        """The worst ratio of any output."""
        return max((each.ratio for each in self.parity), default=0.0)

    @property
    def difference(self):
        """The largest absolute difference of any output."""
        return max((each.difference for each in self.parity), default=0.0)


@dataclasses.dataclass
class Report:
    """Result of `export` or of `verify`.

    Args:
        directory: the bundle, absolute.
        artifacts: dict of format name to `Artifact`.
        tolerance: largest ratio that was allowed.
    """

    directory: str
    artifacts: dict
    tolerance: float

    def __getitem__(self, format):
        return self.artifacts[format]

    def __str__(self):
        rows = [("format", "size", "difference", "of scale", "probes", "seconds")]
        for each in self.artifacts.values():
            figures = (f"{each.difference:.1e}", f"{each.ratio:.1e}", str(each.probes), f"{each.seconds:.1f}")
            rows.append((each.format, readable_size(each.size), *figures))
        for title, cell in _QUANTIZED.items():
            cells = [cell(each) for each in self.artifacts.values()]
            if any(cells):
                rows = [(*row, more or "-") for row, more in zip(rows, [title, *cells], strict=True)]
        table = fixed_width(rows)
        return f"{self.directory}\n{table}\nlargest difference from Keras; tolerance {self.tolerance:.0e} of the scale"

    def to_dict(self):
        """The report as plain dicts, lists and numbers."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record):
        """The report that `to_dict` wrote."""
        artifacts = {
            name: Artifact(**{**each, "parity": [Parity(**parity) for parity in each["parity"]]})
            for name, each in record["artifacts"].items()
        }
        return cls(record["directory"], artifacts, record["tolerance"])


def _evaluated(name, format):
    def cell(artifact):
        value = (artifact.evaluation or {}).get(name)
        return value is not None and format.format(value)

    return cell


# Columns that only quantized artifacts fill.
_QUANTIZED = {
    "of float": lambda each: each.float_size and f"{each.size / each.float_size:.3f}",
    "agreement": _evaluated("agreement", "{:.2%}"),
    "float score": _evaluated("score_float", "{:.4g}"),
    "score": _evaluated("score", "{:.4g}"),
}


def readable_size(size):
    """Bytes for a human: `3.4 MB`."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def fixed_width(rows):
    """Rows of strings as a table: first column left, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
