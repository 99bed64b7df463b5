"""Accuracy of a trained classifier on the simulator of an accelerator, beside that of Keras on the same rows.

    python benchmarks/accelerator_tasks.py --task cifar10 --model image_classification/model.keras --data-dir cifar10
    python benchmarks/accelerator_tasks.py --task sst2 --model text_classification/model.keras --data-dir sentences
    python benchmarks/accelerator_tasks.py --task cifar10 --rows 1000 --work folder --precisions float int8_static
    python benchmarks/accelerator_tasks.py --task cifar10 --tiny --target xnnpack    # smoke test

The models are those of the examples. Each precision is an `export` for a target, calibrated with training data:
`float`, `int8_static`, and `int8_static/16` with activations of 16 bits. `nodes` are those that the accelerator takes, of
all. Scores are percents of the same test rows, chosen at random: `keras` of the float model, `cpu` of the file in its own
runtime, `score` of the file on the accelerator; `lost` is `keras - score`, `agreement` the share of rows with the class of
Keras, and `from_cpu` the largest difference of an output from the file on the CPU, as a share of the scale.
A simulator may take seconds for each row. With `--work` the bundles and the outputs of each hundred rows are kept, so
that a run can be stopped and continued.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import numpy as np
from measure import Table, versions

CHUNK = 100
CALIBRATION = 200
TINY_ROWS = 6


class Task(NamedTuple):
    """A trained classifier and its data.

    Args:
        model: Keras model.
        sizes: dict of dynamic axis to its size, without the batch.
        inputs: dict of input name to the rows of the test set.
        labels: their classes.
        calibration: dict of input name to rows of the training set.
    """

    model: Any
    sizes: dict[str, int]
    inputs: dict[str, np.ndarray]
    labels: np.ndarray
    calibration: dict[str, np.ndarray]


def cifar10(options):
    from quantized_tasks import toy_classifier

    from keras_transformer import load_model
    from keras_transformer.data import load_images

    random = np.random.default_rng(0)
    if options.data_dir is None:
        images, labels = random.integers(0, 256, (2 * TINY_ROWS, 32, 32, 3)), random.integers(0, 10, 2 * TINY_ROWS)
        parts = [(images[:TINY_ROWS], labels[:TINY_ROWS]), (images[TINY_ROWS:], labels[TINY_ROWS:])]
    else:
        data = load_images(data_dir=options.data_dir)
        parts = [data.test, data.train]
    (images, labels), (others, _) = parts
    some = random.permutation(len(others))[:CALIBRATION]
    model = load_model(options.model) if options.model else toy_classifier()
    inputs, calibration = ({"images": each.astype("float32")} for each in (images, others[some]))
    return Task(model, {}, inputs, np.asarray(labels), calibration)


def sst2(options):
    from quantized_tasks import example

    from keras_transformer import load_model, text

    script = example("text_classification")
    tokenizer = text.load_tokenizer(options.tokenizer or options.model.parent / "pretrained" / "tokenizer")
    test, train = (script.read(options.data_dir, f"stsa.binary.{name}") for name in ("test", "train"))
    some = np.random.default_rng(0).permutation(len(train))[:CALIBRATION]

    def encoded(pairs):
        rows = tokenizer.encode([sentence for sentence, _ in pairs], start=True, end=True, max_length=script.MAX_LENGTH)
        ids = np.array([[*row, *[0] * (script.MAX_LENGTH - len(row))] for row in rows], "int32")
        lengths = np.array([len(row) for row in rows])
        return {"token_ids": ids, "padding_mask": np.arange(script.MAX_LENGTH) < lengths[:, None]}

    labels = np.array([label for _, label in test])
    model = load_model(options.model)
    return Task(model, {"length": script.MAX_LENGTH}, encoded(test), labels, encoded([train[each] for each in some]))


TASKS = {"cifar10": cifar10, "sst2": sst2}


def _batches(inputs, size):
    """Dicts of `size` rows each; rows that fill no batch are left out."""
    starts = range(0, len(next(iter(inputs.values()))) - size + 1, size)
    return [{name: rows[start : start + size] for name, rows in inputs.items()} for start in starts]


def _exported(task, precision, options, folder):
    """The figures of a bundle in a folder, which is written unless it is there."""
    from keras_transformer.export import ExportOptions, Int8Static, export
    from keras_transformer.export.bundle.manifest import read_manifest

    bundle = folder / "bundle"
    if not bundle.exists():
        mode, _, bits = precision.partition("/")
        calibration = _batches(task.calibration, options.batch_size)
        quantize = None
        if mode == "int8_static":
            quantize = Int8Static(calibration, ranges=options.ranges, activation_bits=int(bits or 8))
        chosen = ExportOptions(target=options.target, static={"batch": options.batch_size, **task.sizes})
        report = export(task.model, bundle, quantize=quantize, probes=calibration[:1], progress=False, options=chosen)
        print(report.target, flush=True)
    return bundle, read_manifest(bundle)


def _on_cpu(bundle, format, batches):
    from keras_transformer.export import load

    model = load(bundle, format)
    return np.concatenate([next(iter(model(**batch).values())) for batch in batches])


def _on_target(bundle, manifest, precision, options, batches, folder):
    """The outputs on the accelerator; those of each chunk are kept in the folder."""
    from keras_transformer.export.targets import get_target

    format = get_target(options.target).format
    file = manifest.path(bundle, format, "serve")
    step = max(CHUNK // options.batch_size, 1)
    found = []
    for start in range(0, len(batches), step):
        path = folder / f"{start * options.batch_size}.npz"
        if not path.exists():
            part = batches[start : start + step]
            np.savez(
                folder / "inputs.npz", **{f"{n}/{key}": x for n, each in enumerate(part) for key, x in each.items()}
            )
            words = [options.target, str(file), precision, str(len(part)), str(folder / "inputs.npz"), str(path)]
            subprocess.run([sys.executable, __file__, "--run", json.dumps(words)], check=True)
            print(f"{precision}: {start + len(part)} of {len(batches)} batches", flush=True)
        with np.load(path) as outputs:
            found.extend(outputs[str(number)] for number in range(len(outputs.files)))
    return np.concatenate(found)


def run_chunk(target, file, precision, count, inputs, path):
    """Runs batches of an `.npz` file on the accelerator, in a process of its own; writes the outputs to another one."""
    from keras_transformer.export.targets import get_target

    with np.load(inputs) as arrays:
        cases = [
            {key.partition("/")[2]: arrays[key] for key in arrays.files if key.startswith(f"{number}/")}
            for number in range(int(count))
        ]
    mode = precision.partition("/")[0]
    measured = get_target(target).run(pathlib.Path(file), "serve", cases, None if mode == "float" else mode)
    partial = pathlib.Path(path).with_suffix(".part.npz")
    np.savez(partial, **{str(number): next(iter(each.values())) for number, each in enumerate(measured.outputs)})
    partial.rename(path)


def _score(outputs, labels):
    return 100 * float(np.mean(outputs.argmax(-1) == labels))


def measure(task, precision, options, folder):
    """The row of a precision."""
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(0).permutation(len(task.labels))[: options.rows]
    order = order[: len(order) // options.batch_size * options.batch_size]
    inputs, labels = {name: rows[order] for name, rows in task.inputs.items()}, task.labels[order]
    bundle, manifest = _exported(task, precision, options, folder)
    batches, format = _batches(inputs, options.batch_size), next(iter(manifest.artifacts))
    keras_outputs = np.asarray(task.model.predict(inputs, batch_size=100, verbose=0))
    cpu = _on_cpu(bundle, format, batches)
    outputs = _on_target(bundle, manifest, precision, options, batches, folder)
    signatures = manifest.target["signatures"]
    counts = [sum(each[key] or 0 for each in signatures) for key in ("taken", "nodes")]
    return {
        "task": options.task,
        "target": options.target,
        "precision": precision,
        "nodes": f"{counts[0]} of {counts[1]}",
        "rows": len(labels),
        "keras": round(_score(keras_outputs, labels), 2),
        "cpu": round(_score(cpu, labels), 2),
        "score": round(_score(outputs, labels), 2),
        "lost": round(_score(keras_outputs, labels) - _score(outputs, labels), 2),
        "agreement": round(_score(outputs, keras_outputs.argmax(-1)), 2),
        "from_cpu": float(f"{np.abs(outputs - cpu).max() / np.abs(cpu).max():.1e}"),
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--tiny", action="store_true", help="smoke test")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--model", type=pathlib.Path, help=".keras file written by the example")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="its tokenizer, if it is not in the same folder")
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--target", default="qnn", help="name of the accelerator")
    parser.add_argument("--precisions", nargs="+", default=["int8_static"])
    parser.add_argument("--ranges", default="mse", help="how ranges of activations are found")
    parser.add_argument("--rows", type=int, help="number of test rows; all of them by default")
    parser.add_argument("--batch-size", type=int, default=1, help="rows that a file takes at once")
    parser.add_argument("--work", type=pathlib.Path, help="folder of bundles and outputs, to continue")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.run:
        is_toy = options.tiny and options.task == "cifar10" and options.model is None
        if options.task is None or (not is_toy and (options.model is None or options.data_dir is None)):
            parser.error("--task, --model and --data-dir are required")
    return options


def main():
    options = parse()
    if options.run:
        return run_chunk(*json.loads(options.run))
    packages = ("tensorflow", "ai-edge-litert", "onnxruntime", "onnxruntime-qnn", "openvino")
    table = Table("Trained classifiers on accelerators", versions(*packages))
    task = TASKS[options.task](options)
    with tempfile.TemporaryDirectory() as folder:
        for precision in options.precisions:
            name = (
                f"{options.task}_{options.target}_{precision.replace('/', '_')}_{options.ranges}_{options.batch_size}"
            )
            table.add(**measure(task, precision, options, (options.work or pathlib.Path(folder)) / name))
    table.finish(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
