"""What a target takes of a bundle: nodes, differences, and what falls back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from keras_transformer.utils.types import JsonObject


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Nodes that an accelerator does not run, of one kind and for one reason.

    Args:
        op: name of the operator.
        reason: why the accelerator refuses it.
        remedy: what to change in the model, or "".
        count: number of these nodes.
        layers: names of the layers that they came from.

    Example:

    >>> print(Fallback("SCATTER_ND", "operation not supported", "set sliding_window=None", 2, ("block_0", "block_1")))
    2 SCATTER_ND of 'block_0', 'block_1': operation not supported; set sliding_window=None
    """

    op: str
    reason: str
    remedy: str = ""
    count: int = 1
    layers: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"'{each}'" for each in self.layers[:3]) + (", ..." if len(self.layers) > 3 else "")
        where = f" of {named}" if self.layers else ""
        return f"{self.count} {self.op}{where}: {self.reason}" + (f"; {self.remedy}" if self.remedy else "")


@dataclasses.dataclass(frozen=True)
class SignatureResult:
    """What a target takes of one signature.

    Args:
        name: name of the signature.
        nodes: number of nodes of its graph.
        taken: nodes that the accelerator runs; None where it was not run, since the library is not installed.
        difference: largest difference of an output from the same file on the CPU, as a share of its scale; None where the
            accelerator was not run.
        fallbacks: tuple of `Fallback`: as the accelerator reports, or, where it was not run, as the static rules find.
        figures: dict of what else was measured, such as the bytes of memory: numbers by name.
    """

    name: str
    nodes: int
    taken: int | None = None
    difference: float | None = None
    fallbacks: tuple[Fallback, ...] = ()
    figures: Mapping[str, int | float] = dataclasses.field(default_factory=dict[str, int | float])

    @property
    def measured(self) -> str:
        """The figures as text.

        Example:

        >>> SignatureResult("serve", 9, figures={"arena_bytes": 24208, "cycles": 89738}).measured
        'arena 24.2 kB, cycles 89,738'
        """
        return ", ".join(_figure(*each) for each in self.figures.items())

    @classmethod
    def from_dict(cls, record: JsonObject) -> SignatureResult:
        """The result that `dataclasses.asdict` wrote."""
        fallbacks = (
            dataclasses.replace(Fallback(**each), layers=tuple(each["layers"])) for each in record["fallbacks"]
        )
        return dataclasses.replace(cls(**record), fallbacks=tuple(fallbacks))


def _figure(name: str, number: float) -> str:
    """A figure as text; bytes are kilobytes."""
    is_size = name.endswith("_bytes")
    text = f"{number / 1000:,.1f} kB" if is_size else f"{number:,.3g}" if isinstance(number, float) else f"{number:,}"
    return f"{name.removesuffix('_bytes').replace('_', ' ')} {text}"


@dataclasses.dataclass(frozen=True)
class TargetResult:
    """What a target takes of a bundle.

    Args:
        target: name of the target.
        signatures: tuple of `SignatureResult`.
        simulator: what ran the files, such as `"ai-edge-litert 2.3.0"`; None where nothing did.
        reason: why nothing did, or "".
        compiled: names of the files of the bundle that the accelerator's compiler made of its signatures.

    Example:

    >>> result = TargetResult("xnnpack", (SignatureResult("serve", 9, 9, 1e-7),), "ai-edge-litert 2.3.0")
    >>> print(result)
    xnnpack: 9 of 9 nodes of 'serve' taken, 1.0e-07 of the scale from the CPU (run by ai-edge-litert 2.3.0)
    """

    target: str
    signatures: tuple[SignatureResult, ...]
    simulator: str | None = None
    reason: str = ""
    compiled: tuple[str, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether the accelerator, or its simulator, ran every signature."""
        return self.simulator is not None

    @property
    def is_whole(self) -> bool:
        """Whether the accelerator ran every node of every signature."""
        return self.is_proven and all(each.taken == each.nodes for each in self.signatures)

    @property
    def difference(self) -> float | None:
        """The largest difference of all signatures from the CPU, or None."""
        found = [each.difference for each in self.signatures if each.difference is not None]
        return max(found) if found else None

    def __str__(self) -> str:
        lines: list[str] = []
        for each in self.signatures:
            if each.taken is None:
                found = "by the static rules nothing falls back" if not each.fallbacks else "by the static rules:"
                lines.append(f"{self.target}: '{each.name}', {each.nodes} nodes, NOT RUN ({self.reason}); {found}")
            else:
                far = "" if each.difference is None else f", {each.difference:.1e} of the scale from the CPU"
                taken = f"{each.taken} of {each.nodes} nodes of '{each.name}' taken"
                lines.append(f"{self.target}: {taken}{far} (run by {self.simulator})")
            lines += [f"  {each.measured}"] if each.figures else []
            lines += [f"  {fallback}" for fallback in each.fallbacks]
        lines += [f"  compiled: {', '.join(self.compiled)}"] if self.compiled else []
        return "\n".join(lines)

    def to_dict(self) -> JsonObject:
        """The result as dicts, lists and numbers, for the manifest."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record: JsonObject) -> TargetResult:
        """The result that `to_dict` wrote."""
        signatures = tuple(map(SignatureResult.from_dict, record["signatures"]))
        return dataclasses.replace(cls(**record), signatures=signatures, compiled=tuple(record.get("compiled", ())))
