"""The largest difference of one output of a file from the Keras model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from keras_transformer.export.data.checks import IncompleteError, is_count, is_list, is_names, is_number, is_object

# Above this share of a block's scale, a bundle's own record of its rounding is not believed: the tolerance of files that
# are held to what the rounding of the model explains.
CEILING = 1e-3


@dataclasses.dataclass(frozen=True)
class Parity:
    """Largest difference of one output over all probes.

    Args:
        signature: name of the signature.
        output: name of the output.
        difference: largest absolute difference from the reference.
        scale: largest absolute reference value on the probe with the largest ratio.
        ratio: largest `difference / scale` of all probes.
        share: largest difference of all probes as a share of what is allowed where it occurs.
        is_constant: whether the reference varies over the probes by no more than rounding: nothing was shown.
    """

    signature: str
    output: str
    difference: float
    scale: float
    ratio: float
    share: float = 0.0
    is_constant: bool = False

    def joined(self, other: Parity) -> Parity:
        """The larger of two differences of the same output."""
        larger = self if self.ratio > other.ratio else other
        return dataclasses.replace(larger, share=max(self.share, other.share))

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        return {name: value for name, value in vars(self).items() if name != "is_constant" or value}

    @classmethod
    def from_dict(cls, record: object, where: str) -> Parity:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the record, for the error.

        Raises:
            IncompleteError: the ratio is missing, or a figure is not a number.
        """
        fields = record if is_object(record) else {}
        given = [fields.get(each, 0.0) for each in ("difference", "scale", "ratio", "share")]
        figures = [each for each in given if is_number(each)]
        if "ratio" not in fields or len(figures) < len(given):
            raise IncompleteError(f"{where}: parity")
        difference, scale, ratio, share = figures
        names = str(fields.get("signature", "")), str(fields.get("output", ""))
        return cls(*names, difference, scale, ratio, share, fields.get("is_constant") is True)


def worst_of(found: Iterable[Parity]) -> list[Parity]:
    """The largest differences of each output."""
    worst: dict[tuple[str, str], Parity] = {}
    for each in found:
        key = each.signature, each.output
        worst[key] = each.joined(worst[key]) if key in worst else each
    return list(worst.values())


@dataclasses.dataclass(frozen=True)
class TwinRecord:
    """How far the model that was exported is from the one that was handed over, where it is another one.

    Args:
        steps: how it was made of that, such as "merged adapters".
        parity: `Parity` of each output that was compared.
        probes: number of probes.
    """

    steps: tuple[str, ...]
    parity: tuple[Parity, ...]
    probes: int

    @property
    def largest(self) -> Parity:
        """The output with the largest difference."""
        return max(self.parity, key=lambda each: each.ratio)

    @property
    def share(self) -> float:
        """The largest share of what is allowed, of all outputs."""
        return max(each.share for each in self.parity)

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        return {
            "steps": list(self.steps),
            "parity": [each.to_dict() for each in self.parity],
            "probes": self.probes,
        }

    @classmethod
    def from_dict(cls, record: object) -> TwinRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.

        Raises:
            IncompleteError: a field is missing, or of another type.
        """
        fields = record if is_object(record) else {}
        steps, parity, probes = (fields.get(each) for each in ("steps", "parity", "probes"))
        if not is_names(steps) or not is_list(parity) or not parity or not is_count(probes):
            raise IncompleteError("twin")
        return cls(tuple(steps), tuple(Parity.from_dict(each, "twin") for each in parity), probes)
