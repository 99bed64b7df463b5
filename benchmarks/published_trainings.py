"""Predictions of `keras_transformer.planning` for trainings whose speed was published.

    python benchmarks/published_trainings.py                   # all, some minutes on one core
    python benchmarks/published_trainings.py --only "PaLM 540B"

`published_trainings.json` has the models, their splits over devices and the reported speeds, each with its source, and with
what is assumed where the source does not state it. The fractions of the peaks that devices reach (`Device.reached`) were
chosen on the cases marked as fitted; all others are held out. Nothing is computed but costs: no accelerator is needed.
"""

import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from measure import Table, arguments, versions

CASES = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())


def build(model, length, dtype):
    """Returns the model of a case, without memory for its weights."""
    import keras

    from keras_transformer import attention, feedforward, models, tasks
    from keras_transformer.backend.devices.unallocated import unallocated

    width, heads = model["width"], model["heads"]
    size = models.Size(model["layers"], width, heads, model.get("intermediate", 4 * width))
    keras.config.set_dtype_policy(dtype)
    with unallocated():
        if model["kind"] == "gpt":
            return tasks.LanguageModel(models.Decoder(size, model["vocabulary"], max_sequence_length=length))
        if model["kind"] == "llama":
            backbone = models.Llama(size, model["vocabulary"], num_key_value_heads=model["key_value_heads"])
            return tasks.LanguageModel(backbone, tie_embeddings=False)
        if model["kind"] == "parallel":
            # The classes of a head are few beside the blocks; a decoder has the parallel blocks of ViT-22B.
            return models.Decoder(size, 1024, max_sequence_length=length, parallel="one_norm")
        backbone = models.Decoder(
            size,
            model["vocabulary"],
            position="rotary",
            parallel="one_norm",
            attention=attention.MultiHeadAttention(heads, model["key_dim"], num_key_value_heads=1, use_bias=False),
            feedforward=feedforward.GatedFeedForward(model["intermediate"], "silu", use_bias=False),
        )
        return tasks.LanguageModel(backbone)


def reported_seconds(case, devices):
    """Returns the seconds of a step from what a paper reports."""
    (quantity, value), *_ = case["reported"].items()
    tokens = case["batch_size"] * case["length"]
    if quantity == "seconds":
        return value
    if quantity == "tokens":
        return tokens / value
    if quantity == "tokens_per_device":
        return tokens / (value * devices)
    flops = megatron_flops(case) if quantity == "tflops_with_recomputation" else palm_flops(case)
    return flops / (value * 1e12 * devices)


def megatron_flops(case):
    """FLOPs of a step with recomputation, by Narayanan et al., section 5.1."""
    model, length = case["model"], case["length"]
    layers, width, words = (model[name] for name in ("layers", "width", "vocabulary"))
    tokens = case["batch_size"] * length
    return 96 * tokens * layers * width**2 * (1 + length / (6 * width) + words / (16 * layers * width))


def palm_flops(case):
    """FLOPs of a step without recomputation, by Chowdhery et al., appendix B: 6 for each weight, and the attention."""
    model = case["model"]
    layers, width, inner = (model[name] for name in ("layers", "width", "intermediate"))
    shared = model["key_value_heads"] / model["heads"]
    weights = layers * ((2 + 2 * shared) * width**2 + 3 * width * inner) + width * model["vocabulary"]
    return (6 * weights + 12 * layers * width * case["length"]) * case["batch_size"] * case["length"]


def predict(case):
    """Returns the split and the `Training` of a case."""
    from keras_transformer.planning import Split, get_device
    from keras_transformer.planning.planner import Planner

    split, device = Split(**case["split"]), get_device(case["device"])
    device = device._replace(network=case.get("network", device.network))
    model = build(case["model"], case["length"], case.get("dtype", "mixed_bfloat16"))
    planner = Planner(model, device, length=case["length"], optimizer="adam", fused_attention=case["fused_attention"])
    return split, planner.training(split, case["batch_size"] // split.data)


def add_row(table, case):
    split, found = predict(case)
    reported, seconds = reported_seconds(case, split.devices), sum(found.times)
    table.add(
        training=case["name"],
        devices=f"{split.devices:,} {case['device']}",
        reported_s=round(reported, 2),
        predicted_s=round(seconds, 2),
        of_reported=round(seconds / reported, 3),
        utilization=round(found.utilization, 3),
        fitted="fitted" if case["fitted"] else "held out",
        assumed=case.get("assumed", ""),
        **{name: round(part / seconds, 3) for name, part in found.times._asdict().items()},
    )


def main():
    parser = arguments(__doc__.splitlines()[0])
    names = [case["name"] for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="TRAINING")
    options = parser.parse_args()
    table = Table("Predicted and reported trainings", versions("keras-transformer", "keras", "tensorflow"))
    for case in CASES:
        if case["name"] in options.only:
            add_row(table, case)
    for kind in ("fitted", "held out"):
        errors = [abs(row["of_reported"] - 1) for row in table.rows if row["fitted"] == kind]
        if errors:
            table.note(
                f"{kind}: {len(errors)} trainings, mean error {sum(errors) / len(errors):.1%}, largest {max(errors):.1%}"
            )
    table.note("products, bandwidth, exchange and bubble: fractions of the step. utilization: without recomputation.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
