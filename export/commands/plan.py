"""The command `plan`: estimates the memory and time of a model on any devices, without running it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_transformer.export.reporting.tables import Verdict
    from keras_transformer.planning import Device, Plan

EXAMPLES = [
    "llama:3-8B --device h100 --devices 8 --model-parallel 8 --dtype mixed_bfloat16 --recompute 1",
    "CHECKPOINT/config.json --device a100 --devices 16 --batch 4 --length 2048",
    "gpt2:small --device here --batch 2 --length 128",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer plan`."""
    help = "a Hugging Face config.json, or its folder; or MODEL:SIZE, as the catalog lists models"
    parser.add_argument("config", metavar="CONFIG", help=help)
    parser.add_argument(
        "--device", default="h100", metavar="NAME", help="name of the device; here: this processor (default: h100)"
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="number of devices (default: 1)")
    help = "number of devices that share the weights of a replica (default: 1)"
    parser.add_argument("--model-parallel", type=int, default=1, metavar="N", help=help)
    parser.add_argument("--batch", type=int, default=1, help="batch size of a replica (default: 1)")
    parser.add_argument("--length", type=int, default=1024, help="tokens of an example (default: 1024)")
    parser.add_argument("--dtype", help="dtype policy, such as mixed_bfloat16 (default: float32)")
    parser.add_argument("--optimizer", default="adamw", help="sgd, momentum, lion, adam, adamw (default: adamw)")
    parser.add_argument("--accumulate", action="store_true", help="gradients are accumulated over several steps")
    help = "every N-th block recomputes its activations: 1 for all, 0 for none (default: 0)"
    parser.add_argument("--recompute", type=int, default=0, metavar="N", help=help)
    help = "share of its peak performance that a device reaches (default: 0.5; here: 1)"
    parser.add_argument("--efficiency", type=float, help=help)
    parser.add_argument("--json", action="store_true", help="print JSON: bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    """Prints the assumptions and a table, or JSON; returns the exit status."""
    from keras_transformer.export.reporting.tables import show

    _check(arguments)
    found, dtype, device = _planned(arguments)
    if arguments.json:
        print(json.dumps(found._asdict(), indent=2))
    else:
        lines = assumptions(arguments, dtype, device)
        show([*lines, "", *text(found, device, arguments.devices).split("\n"), "", verdict(found, device)])
    return 0


def _planned(arguments: argparse.Namespace) -> tuple[Plan, str, Device]:
    """The plan, the dtype policy of the model and the device."""
    from keras_transformer.export.commands.importing import quick_imports
    from keras_transformer.export.errors import ExportError
    from keras_transformer.export.reporting.progress import Activity
    from keras_transformer.utils.captured_stderr import captured

    with captured(), quick_imports(), Activity("importing TensorFlow") as activity:
        from keras_transformer import planning

        build, plan = planning.build, planning.plan  # Imports TensorFlow.
        try:
            device = planning.get_device(arguments.device)
            activity.set(f"building {arguments.config}")
            model = build(arguments.config, arguments.dtype)
            activity.set(f"counting the operations of {arguments.config}")
            found = plan(model, device, **_options(arguments))
        except planning.UnknownCostError as error:
            raise ExportError(f"{arguments.config} cannot be planned: {error}") from None
    return found, model.dtype_policy.name, device


def _check(arguments: argparse.Namespace) -> None:
    """Raises `PlanningError` for names and sizes that are wrong, before TensorFlow is imported."""
    from keras_transformer.planning.devices import DEVICES
    from keras_transformer.planning.names import check_config
    from keras_transformer.planning.options import DTYPES, OPTIMIZER_SLOTS, check_name, check_sizes

    check_name("device", arguments.device.lower(), ("here", *DEVICES))
    check_name("optimizer", arguments.optimizer, tuple(OPTIMIZER_SLOTS))
    if arguments.dtype is not None:
        check_name("dtype", arguments.dtype, DTYPES)
    sizes = (arguments.batch, arguments.length, arguments.devices, arguments.model_parallel)
    check_sizes(*sizes, _efficiency(arguments))
    check_config(arguments.config)


def assumptions(arguments: argparse.Namespace, dtype: str, device: Device) -> list[str]:
    """Returns lines that say what a plan is for: the values of all options that change it."""
    every = arguments.recompute
    recomputes = f", one of {every} blocks recomputed" if every > 1 else ", all blocks recomputed" if every else ""
    shared = f", {arguments.model_parallel} of them share a replica" if arguments.model_parallel > 1 else ""
    speeds = f"{device.tflops:g} TFLOP/s in 16 bits and {device.bandwidth:,g} GB/s"
    devices = f"{arguments.devices} x {arguments.device}{shared}: {device.memory:g} GB, {speeds}"
    return [
        f"model     {arguments.config}, {dtype}",
        f"batch     {arguments.batch} x {arguments.length:,} tokens in each replica{recomputes}",
        f"optimizer {arguments.optimizer}{', accumulated gradients' if arguments.accumulate else ''}",
        f"device    {devices}, of which {_efficiency(arguments):.0%} are reached",
    ]


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "batch_size": arguments.batch,
        "length": arguments.length,
        "devices": arguments.devices,
        "model_parallel": arguments.model_parallel,
        "optimizer": arguments.optimizer,
        "accumulate": arguments.accumulate,
        "recompute": arguments.recompute,
        "efficiency": _efficiency(arguments),
    }


def _efficiency(arguments: argparse.Namespace) -> float:
    usual = 1.0 if arguments.device == "here" else 0.5
    return usual if arguments.efficiency is None else arguments.efficiency


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
        + (f", {seconds(plan.exchange).strip()} of it exchange" if plan.exchange else ""),
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
    from keras_transformer.export.reporting.tables import Verdict

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
