"""The command `plan`: memory and time of a model on devices that need not be here."""

import json

EXAMPLES = [
    "llama:3-8B --device h100 --devices 8 --model-parallel 8 --dtype mixed_bfloat16 --recompute 1",
    "CHECKPOINT/config.json --device a100 --devices 16 --batch 4 --length 2048",
    "gpt2:small --device here --batch 2 --length 128",
]


def add_arguments(parser):
    """Adds the options of `keras-transformer plan`."""
    help = "a config.json of Hugging Face, or its folder; or MODEL:SIZE, as the catalog names models"
    parser.add_argument("config", metavar="CONFIG", help=help)
    parser.add_argument(
        "--device", default="h100", metavar="NAME", help="its name; here: this processor (default: h100)"
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="how many (default: 1)")
    help = "so many devices share the weights of a replica (default: 1)"
    parser.add_argument("--model-parallel", type=int, default=1, metavar="N", help=help)
    parser.add_argument("--batch", type=int, default=1, help="rows that a replica takes at once (default: 1)")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row (default: 1024)")
    parser.add_argument("--dtype", help="dtype policy, such as mixed_bfloat16 (default: float32)")
    parser.add_argument("--optimizer", default="adamw", help="sgd, momentum, lion, adam, adamw (default: adamw)")
    parser.add_argument("--accumulate", action="store_true", help="gradients are accumulated over several steps")
    help = "each so-many-th block recomputes its activations: 1 for all, 0 for none (default: 0)"
    parser.add_argument("--recompute", type=int, default=0, metavar="EVERY", help=help)
    help = "share of its peak that a device reaches (default: 0.5; here: 1)"
    parser.add_argument("--efficiency", type=float, help=help)
    parser.add_argument("--json", action="store_true", help="print JSON: bytes and seconds")


def run(arguments):
    """Prints a table, or JSON; returns the exit status."""
    from keras_transformer.export.errors import ExportError
    from keras_transformer.utils.captured_stderr import quiet

    with quiet():
        from keras_transformer import planning

        if arguments.optimizer not in planning.OPTIMIZER_SLOTS:
            known = ", ".join(planning.OPTIMIZER_SLOTS)
            raise ExportError(f"no optimizer {arguments.optimizer!r}; there are {known}")
        try:
            device = planning.get_device(arguments.device)
            model = planning.build(arguments.config, arguments.dtype)
            found = planning.plan(model, device, **_options(arguments))
        except planning.UnknownCostError as error:
            raise ExportError(f"{arguments.config} cannot be planned for: {error}") from None
    print(json.dumps(found._asdict(), indent=2) if arguments.json else text(found, device, arguments.devices))
    return 0


def _options(arguments):
    usual = 1.0 if arguments.device == "here" else 0.5
    return {
        "batch_size": arguments.batch,
        "length": arguments.length,
        "devices": arguments.devices,
        "model_parallel": arguments.model_parallel,
        "optimizer": arguments.optimizer,
        "accumulate": arguments.accumulate,
        "recompute": arguments.recompute,
        "efficiency": usual if arguments.efficiency is None else arguments.efficiency,
    }


def text(plan, device, devices=1):
    """A `Plan` as lines to read."""
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
    if plan.token is not None:
        lines += [
            "",
            "decoding, on each device",
            f"  {'cache':<12}{gigabytes(plan.cache)}",
            f"  {'at most':<12}{gigabytes(plan.decoding)}  {_fits(plan.decoding, device)}",
            f"  {'token':<12}{seconds(plan.token)}",
        ]
    return "\n".join(lines)


def gigabytes(count):
    """Bytes, in GB of 10⁹."""
    return f"{count / 1e9:>10,.3f} GB"


def seconds(time):
    """A time, in the unit that suits it."""
    return f"{time:>10,.2f} s " if time >= 1 else f"{time * 1e3:>10,.2f} ms"


def _fits(count, device):
    return "fits" if count <= device.memory * 1e9 else f"does NOT fit into {device.memory:.0f} GB"
