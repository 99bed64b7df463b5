"""The command `plan`: estimates the memory and time of a model on any devices, without running it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.planning import Device, Plan, Split

EXAMPLES = [
    "llama:3-8B --device h100 --devices 8 --model-parallel 8 --dtype mixed_bfloat16 --recompute 1",
    "llama:3-8B --device h100 --devices 64 --dtype mixed_bfloat16 --length 4096 --fused-attention --search",
    "CHECKPOINT/config.json --device a100 --devices 16 --batch 4 --length 2048 --zero 3",
    "gpt2:small --device here --batch 2 --length 128",
]
_BATCH_OF_A_DEVICE = 8  # In a search.
# Options that a search chooses, by their names in Python.
_CHOSEN = {"model_parallel": 1, "pipeline": 1, "zero": 0, "micro_batch": None, "recompute": 0, "accumulate": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer plan`."""
    help = "a Hugging Face config.json, or its folder; or MODEL:SIZE, as the catalog lists models"
    parser.add_argument("config", metavar="CONFIG", help=help)
    parser.add_argument(
        "--device", default="h100", metavar="NAME", help="name of the device; here: this processor (default: h100)"
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="number of devices (default: 1)")
    help = "print the fastest splits over the devices that fit, instead of one plan"
    parser.add_argument("--search", action="store_true", help=help)
    help = "number of devices that share the weights of a replica (default: 1)"
    parser.add_argument("--model-parallel", type=int, default=1, metavar="N", help=help)
    help = "number of stages of blocks, one after another on different devices (default: 1)"
    parser.add_argument("--pipeline", type=int, default=1, metavar="N", help=help)
    help = "what replicas divide: 1 optimizer, 2 and gradients, 3 and weights (fully sharded) (default: 0, nothing)"
    parser.add_argument("--zero", type=int, default=0, metavar="STAGE", help=help)
    help = "batch size of a replica (default: 1); with --search, of all devices together (default: 8 for each)"
    parser.add_argument("--batch", type=int, help=help)
    help = "examples that a replica computes at once (default: all of its batch)"
    parser.add_argument("--micro-batch", type=int, metavar="N", help=help)
    parser.add_argument("--length", type=int, default=1024, help="tokens of an example (default: 1024)")
    parser.add_argument("--dtype", help="dtype policy, such as mixed_bfloat16 (default: float32)")
    parser.add_argument("--optimizer", default="adamw", help="such as sgd, lion, fused_adamw (default: adamw)")
    parser.add_argument("--accumulate", action="store_true", help="gradients are accumulated over several steps")
    help = "every N-th block recomputes its activations: 1 for all, 0 for none (default: 0)"
    parser.add_argument("--recompute", type=int, default=0, metavar="N", help=help)
    help = "attention scores stay inside a kernel, as in FlashAttention"
    parser.add_argument("--fused-attention", action="store_true", help=help)
    help = "tokens whose logits are computed at a time, as by training.NextTokenTrainer (default: all)"
    parser.add_argument("--loss-chunk", type=int, metavar="N", help=help)
    help = "share of all its peaks that a device reaches (default: measured shares, which the plan prints)"
    parser.add_argument("--efficiency", type=float, help=help)
    parser.add_argument("--json", action="store_true", help="print JSON: bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    """Prints the assumptions and a table, or JSON; returns the exit status."""
    from keras_transformer.export.reporting.plan_text import table, text, verdict
    from keras_transformer.export.reporting.terminal import show

    _check(arguments)
    plans, dtype, device = _planned(arguments)
    if arguments.json:
        found = [_as_dict(plan) for plan in plans]
        print(json.dumps(found if arguments.search else found[0], indent=2))
        return 0
    lines = assumptions(arguments, dtype, device)
    if arguments.search:
        show([*lines, "", *table(plans)])
    else:
        printed = text(plans[0], device, arguments.devices).split("\n")
        show([*lines, "", *printed, "", verdict(plans[0], device)])
    return 0


def _as_dict(plan: Plan) -> JsonObject:
    return plan._asdict() | {"times": plan.times._asdict(), "split": plan.split._asdict()}


def _planned(arguments: argparse.Namespace) -> tuple[list[Plan], str, Device]:
    """The plan, or those of a search; the dtype policy of the model and the device."""
    from keras_transformer.export.commands.importing import quick_imports
    from keras_transformer.export.errors import ExportError
    from keras_transformer.export.reporting.progress import Activity
    from keras_transformer.utils.captured_stderr import captured

    with captured(), quick_imports(), Activity("importing TensorFlow") as activity:
        from keras_transformer import planning

        build, plan, search = planning.build, planning.plan, planning.search  # Imports TensorFlow.
        try:
            device = planning.get_device(arguments.device)
            activity.set(f"building {arguments.config}")
            model = build(arguments.config, arguments.dtype)
            activity.set(f"counting the operations of {arguments.config}")
            if arguments.search:
                plans = search(model, device, arguments.devices, **_options(arguments))
            else:
                chosen = {name: getattr(arguments, name) for name in _CHOSEN}
                plans = [plan(model, device, devices=arguments.devices, **chosen, **_options(arguments))]
        except planning.UnknownCostError as error:
            raise ExportError(f"{arguments.config} cannot be planned: {error}") from None
    return plans, model.dtype_policy.name, device


def _check(arguments: argparse.Namespace) -> None:
    """Raises `PlanningError` for names and sizes that are wrong, before TensorFlow is imported."""
    from keras_transformer.planning.devices import DEVICES
    from keras_transformer.planning.errors import PlanningError
    from keras_transformer.planning.names import check_config
    from keras_transformer.planning.options import DTYPES, OPTIMIZER_SLOTS, check_name, check_sizes
    from keras_transformer.planning.split import check_split

    check_name("device", arguments.device.lower(), ("here", *DEVICES))
    check_name("optimizer", arguments.optimizer, tuple(OPTIMIZER_SLOTS))
    if arguments.dtype is not None:
        check_name("dtype", arguments.dtype, DTYPES)
    sizes = (_batch(arguments), arguments.length, arguments.devices, arguments.model_parallel * arguments.pipeline)
    check_sizes(*sizes, arguments.efficiency, arguments.loss_chunk)
    check_split(_split(arguments))
    changed = [name for name, default in _CHOSEN.items() if getattr(arguments, name) != default]
    if arguments.search and changed:
        raise PlanningError(f"--search chooses --{changed[0].replace('_', '-')}")
    check_config(arguments.config)


def _split(arguments: argparse.Namespace) -> Split:
    from keras_transformer.planning.split import Split

    tensor, pipeline = arguments.model_parallel, arguments.pipeline
    data = arguments.devices // (tensor * pipeline)
    return Split(data, tensor, pipeline, arguments.zero, arguments.micro_batch, arguments.recompute)


def _batch(arguments: argparse.Namespace) -> int:
    usual = _BATCH_OF_A_DEVICE * arguments.devices if arguments.search else 1
    return usual if arguments.batch is None else arguments.batch


def assumptions(arguments: argparse.Namespace, dtype: str, device: Device) -> list[str]:
    """Returns lines that say what a plan is for: the values of all options that change it."""
    reached = device.at(arguments.efficiency).reached
    place = "of all devices" if arguments.search else "in each replica"
    attention = "fused attention" if arguments.fused_attention else "attention scores in memory"
    lines = [
        f"model     {arguments.config}, {dtype}, {attention}{_loss(arguments)}",
        f"batch     {_batch(arguments):,} x {arguments.length:,} tokens {place}{_chosen(arguments)}",
        f"optimizer {arguments.optimizer}{', accumulated gradients' if arguments.accumulate else ''}",
        f"device    {arguments.devices:,} x {arguments.device}: {device.memory:g} GB, {device.tflops:g} TFLOP/s in 16 bits, "
        f"{device.bandwidth:,g} GB/s",
        f"reached   {reached.products:.0%} of the TFLOP/s, {reached.bandwidth:.0%} of the GB/s",
    ]
    if arguments.devices > 1:
        joined = f"{device.link / 2:,g} GB/s each way among {device.node:,}, {device.network / 2:,g} to others"
        lines.append(f"links     {joined}; {reached.link:.0%} reached")
    return lines


def _loss(arguments: argparse.Namespace) -> str:
    """The option of the loss, as text."""
    return f", logits of {arguments.loss_chunk:,} tokens at a time" if arguments.loss_chunk else ""


def _chosen(arguments: argparse.Namespace) -> str:
    """The options of a split, as text."""
    from keras_transformer.planning.split import describe

    words = describe(_split(arguments)._replace(micro_batch=arguments.micro_batch, recompute=0))
    every = arguments.recompute
    recomputed = [f"one of {every} blocks recomputed" if every > 1 else "all blocks recomputed"] if every else []
    return "".join(f", {each}" for each in (*([] if arguments.search else [words]), *recomputed))


def _options(arguments: argparse.Namespace) -> JsonObject:
    return {
        "batch_size": _batch(arguments),
        "length": arguments.length,
        "optimizer": arguments.optimizer,
        "fused_attention": arguments.fused_attention,
        "loss_chunk": arguments.loss_chunk,
        "efficiency": arguments.efficiency,
    }
