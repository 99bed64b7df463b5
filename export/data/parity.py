"""The largest difference of one output of a file from the Keras model."""

from __future__ import annotations

import dataclasses

from keras_transformer.export.data.checks import IncompleteError, is_number, is_object

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
    """

    signature: str
    output: str
    difference: float
    scale: float
    ratio: float
    share: float = 0.0

    def joined(self, other: Parity) -> Parity:
        """The larger of two differences of the same output."""
        larger = self if self.ratio > other.ratio else other
        return dataclasses.replace(larger, share=max(self.share, other.share))

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        return dict(vars(self))

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
        return cls(str(fields.get("signature", "")), str(fields.get("output", "")), *figures)
