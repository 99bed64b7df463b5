"""Plans as text: a table of several, or one with its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.export.data.tables import Verdict

if TYPE_CHECKING:
    from keras_transformer.planning import Device, Plan


def table(plans: list[Plan]) -> list[str]:
    """Returns the lines of a table of plans, the fastest first."""
    from keras_transformer.planning.split import describe

    rows = [("split", "GB", "s a step", "tokens/s", "utilization", "bound by")]
    rows += [
        (
            describe(plan.split),
            f"{plan.training / 1e9:,.1f}",
            f"{plan.step:,.2f}",
            f"{plan.tokens:,.0f}",
            f"{plan.utilization:.1%}",
            plan.times.bound,
        )
        for plan in plans
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def text(plan: Plan, device: Device, devices: int = 1) -> str:
    """Returns a `Plan` as text."""
    lines = [
        f"{plan.parameters:,} parameters",
        "",
        "training, on each device",
        *(
            f"  {name:<12}{gigabytes(getattr(plan, name))}"
            for name in ("weights", "gradients", "optimizer", "activations")
        ),
        f"  {'at most':<12}{gigabytes(plan.training)}  {_fits(plan.training, device)}",
        f"  {'step':<12}{seconds(plan.step)}  {plan.tokens:,.0f} tokens/s on {devices}"
        + (f", {seconds(plan.exchange).strip()} of exchange" if plan.exchange else ""),
        f"  {'bound by':<12}{plan.times.bound:>13}  utilization {plan.utilization:.1%}",
    ]
    if plan.token is not None and plan.cache is not None and plan.decoding is not None:
        lines += [
            "",
            "decoding, on each device",
            f"  {'cache':<12}{gigabytes(plan.cache)}",
            f"  {'at most':<12}{gigabytes(plan.decoding)}  {_fits(plan.decoding, device)}",
            f"  {'token':<12}{seconds(plan.token)}",
        ]
    return "\n".join(lines)


def verdict(plan: Plan, device: Device) -> Verdict:
    """Returns the last line: whether training and decoding fit into the memory of a device."""
    needed = {"training": plan.training, "decoding": plan.decoding}
    large = [name for name, count in needed.items() if count is not None and count > device.memory * 1e9]
    if large:
        needs = " and ".join(f"{name} needs {(needed[name] or 0) / 1e9:,.1f} GB" for name in large)
        return Verdict(f"does not fit: {needs}, and the device has {device.memory:g} GB", is_good=False)
    what = "training fits" if plan.decoding is None else "training and decoding fit"
    return Verdict(f"{what} into {device.memory:g} GB")


def gigabytes(count: float) -> str:
    """Returns a number of bytes in GB of 10⁹."""
    return f"{count / 1e9:>10,.3f} GB"


def seconds(time: float) -> str:
    """Returns a time in s or ms."""
    return f"{time:>10,.2f} s " if time >= 1 else f"{time * 1e3:>10,.2f} ms"


def _fits(count: float, device: Device) -> str:
    return "fits" if count <= device.memory * 1e9 else f"does NOT fit into {device.memory:.0f} GB"
