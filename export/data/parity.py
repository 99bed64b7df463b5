"""The largest difference of one output of a file from the Keras model."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_transformer.export.data.checks import IncompleteError, is_number

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

    def to_dict(self) -> dict[str, Any]:
        """The record as a dict."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, record: Any, where: str) -> Parity:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the record, for the error.

        Raises:
            IncompleteError: the ratio is missing, or a figure is not a number.
        """
        figures = ("difference", "scale", "ratio", "share")
        is_record = isinstance(record, dict) and "ratio" in record
        if not is_record or not all(is_number(record.get(each, 0.0)) for each in figures):
            raise IncompleteError(f"{where}: parity")
        signature, output = str(record.get("signature", "")), str(record.get("output", ""))
        return cls(signature, output, *(record.get(each, 0.0) for each in figures))
