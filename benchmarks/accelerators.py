"""Nodes that accelerators take of our models and of a checkpoint of each architecture, and how far they are from the CPU.

    python benchmarks/accelerators.py
    python benchmarks/accelerators.py --only vit llama --targets litert-gpu
    python benchmarks/accelerators.py --checkpoints --targets litert-gpu qnn
    python benchmarks/accelerators.py --checkpoints all --lines found.jsonl --markdown table.md

Each cell is an `export` for a target of a small model: the nodes of all signatures that the accelerator ran, of
all, and the largest difference from Keras on the CPU, as a share of the scale. `reason` names what falls back, or why
nothing ran. A language model is exported with its cache: `prefill_8` and `decode_1`. Where the library of a target is not
installed, its cells say so. Each cell is measured in a separate process. `--lines` writes it to a file at once, and skips
what the file has already, so that a run can be stopped and continued.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from measure import Table, versions

ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests"
NAMES = ("litert-gpu", "xnnpack", "qnn", "openvino", "coreml", "webgpu")
LENGTH, BUCKET, SLOTS = 16, 8, 24
VOCABULARY = 100


def _models():
    from keras_transformer import models, positions, tasks

    size = models.Size(2, 32, 4, 64)
    language, rotary = tasks.LanguageModel, positions.Rotary(10000.0)
    return {
        "vit": lambda: tasks.ImageClassifier(models.ViT(size, patch_size=4, image_size=16), num_classes=10),
        "bert": lambda: tasks.SequenceClassifier(models.BERT(size, VOCABULARY, max_sequence_length=32), num_classes=3),
        "encoder": lambda: models.Encoder(size, VOCABULARY, max_sequence_length=32, activation="gelu"),
        "gpt2": lambda: language(models.GPT2(size, VOCABULARY, max_sequence_length=32)),
        "llama": lambda: language(models.Llama(size, VOCABULARY, num_key_value_heads=2)),
        "mistral": lambda: language(models.Mistral(size, VOCABULARY, window=7, num_key_value_heads=2, position=rotary)),
        "t5": lambda: language(models.T5(models.T5Size(*size, head_dim=8), VOCABULARY)),
        "rwkv": lambda: language(models.RWKV(size, VOCABULARY)),
        "retnet": lambda: language(models.RetNet(size, VOCABULARY)),
    }


def _randomized(model, scale=0.05):
    """A model whose weights are all away from their initial values, norms and biases too."""
    import numpy as np

    random = np.random.default_rng(0)
    for weight in model.weights:
        if "float" in str(weight.dtype) and "variance" not in weight.path:
            weight.assign(np.asarray(weight) + random.normal(scale=scale, size=weight.shape))
    return model


def _sizes(model, inputs):
    """The size of each dynamic axis: that of the inputs of a checkpoint, or a small one."""
    from keras_transformer.export.data.axes import sizes_of
    from keras_transformer.export.spec.functional import check_model, input_specs

    specs = input_specs(check_model(model), {})
    given = sizes_of(specs, inputs) if inputs else {}
    axes = {axis for each in specs for axis in each.axes if axis}
    return {axis: 1 if axis == "batch" else given.get(axis, LENGTH) for axis in axes}


def _built(name):
    """A model, and the inputs of the checkpoint that it was read from."""
    import keras

    keras.utils.set_random_seed(0)
    if name in _models():
        return _randomized(_models()[name]()), None
    sys.path.insert(0, str(ROOT / "checkpoints"))
    from checkpoint_cases import Expected
    from keras_transformer.checkpoints import from_huggingface

    folder = ROOT / "data" / "checkpoints" / name
    return from_huggingface(folder, verbose=0), Expected(folder).inputs


def measure_one(name, targets, quantize):
    """Prints the figures of one model as JSON, a dict for each target."""
    from keras_transformer.export import ExportOptions, GenerationOptions, export
    from keras_transformer.tasks import LanguageModel

    model, inputs = _built(name)
    slots = min(getattr(model, "max_length", None) or SLOTS, SLOTS)
    shapes = {"static": _sizes(model, inputs)}
    if isinstance(model, LanguageModel):
        shapes = {"generation": GenerationOptions(prefill_buckets=(BUCKET,), static_length=slots)}
    found = {}
    for target in targets:
        with tempfile.TemporaryDirectory() as folder:
            try:
                options = ExportOptions(target=target, **shapes)
                report = export(model, f"{folder}/b", progress=False, quantize=quantize, options=options)
                found[target] = _figures(report.target)
            except Exception as error:
                found[target] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}
    print(json.dumps(found))


def _figures(result):
    nodes = sum(each.nodes for each in result.signatures)
    reasons = dict.fromkeys(str(fallback) for each in result.signatures for fallback in each.fallbacks)
    if not result.is_proven:
        return {"nodes": nodes, "reason": "; ".join([f"not run: {result.reason}", *reasons])}
    taken = sum(each.taken for each in result.signatures)
    return {"nodes": nodes, "taken": taken, "difference": result.difference, "reason": "; ".join(reasons)}


def _in_a_process(name, target, quantize, seconds):
    """Measures one cell in a separate process, because converters crash and leak."""
    words = [sys.executable, __file__, "--one", name, "--targets", target]
    words += ["--quantize", quantize] if quantize else []
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {seconds:g} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])[target]


def _rows(names, options):
    """A row for each model and target: those of the file of `--lines`, and the others, which are measured."""
    path = options.lines and pathlib.Path(options.lines)
    lines = path.read_text().splitlines() if path and path.is_file() else []
    known = {(row["model"], row["target"]): row for row in map(json.loads, lines)}
    for name in names:
        for target in options.targets:
            row = known.get((name, target))
            if row is None:
                row = {"model": name, "target": target}
                row |= _in_a_process(name, target, options.quantize, options.seconds)
                if isinstance(row.get("difference"), float):
                    row["difference"] = float(f"{row['difference']:.1e}")
                if path:
                    with path.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            yield row


def _markdown(rows, targets):
    """The table in Markdown: a row for each model, a column for each target, and the reasons of what is not full."""
    cells = {(row["model"], row["target"]): _cell(row) for row in rows}
    lines = ["| model | " + " | ".join(f"`{each}`" for each in targets) + " |", "|---" * (len(targets) + 1) + "|"]
    for name in dict.fromkeys(row["model"] for row in rows):
        lines.append(f"| {name} | " + " | ".join(cells[name, each] for each in targets) + " |")
    return "\n".join(lines) + "\n"


def _cell(row):
    if "taken" not in row:
        return row.get("error") or row["reason"]
    text = f"{row['taken']} of {row['nodes']}, {row['difference']:.0e}".replace("e-0", "e-")
    return text if row["taken"] == row["nodes"] else f"{text}: {row['reason']}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--tiny", action="store_true", help="one model for each target")
    parser.add_argument(
        "--only", nargs="+", metavar="MODEL", help="names of models, or folders of tests/data/checkpoints"
    )
    parser.add_argument("--targets", nargs="+", default=NAMES, choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument(
        "--checkpoints",
        nargs="?",
        const="kinds",
        choices=("kinds", "all"),
        help="a checkpoint of each architecture, instead of our models; or all of tests/data/checkpoints",
    )
    parser.add_argument("--quantize", choices=("fp16",), help="for litert-gpu and xnnpack")
    parser.add_argument("--lines", metavar="FILE", help="JSON lines: cells are added at once, and not measured again")
    parser.add_argument("--seconds", type=float, default=600, help="limit for each cell")
    parser.add_argument("--markdown", metavar="FILE", help="also write the table in Markdown")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(options):
    if options.only:
        return options.only
    if options.tiny:
        return ["vit"]
    if not options.checkpoints:
        return list(_models())
    sys.path.insert(0, str(ROOT / "checkpoints"))
    from every_checkpoint import one_of_each

    from checkpoint_cases import FOLDERS

    return [folder.name for folder in (FOLDERS if options.checkpoints == "all" else one_of_each(FOLDERS))]


def main():
    options = parse()
    if options.one:
        return measure_one(options.one, options.targets, options.quantize)
    packages = ("tensorflow", "ai-edge-litert", "onnxruntime", "onnxruntime-qnn", "openvino", "coremltools")
    table = Table("Accelerators: nodes taken, and the difference from the CPU", versions(*packages))
    for row in _rows(_chosen(options), options):
        table.add(**row)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(_markdown(table.rows, options.targets))
    table.finish(options.json)
    return int(any("error" in row for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
