"""Sound files that the gate must accept: all own models and kinds of checkpoints, with fresh, trained and extreme weights.

    python benchmarks/gate_clean.py [--only gpt2 t5-ConditionalGeneration ...] [--state FOLDER] [--json FILE]
    python benchmarks/gate_clean.py --generation --only gpt2     # the steps of language models, too

Models are the small ones of tests/contract; checkpoints those of tests/data/checkpoints, one of each type of model.
`trained` is five steps of Adam, `extreme` has large embeddings, small norms and outlier channels. A cell is the largest
share of what is allowed that an output reaches, or the error. Each model has a process of its own; with `--state`, a run
that was stopped goes on where it was.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
import pathlib
import subprocess
import sys
import tempfile

import measure

ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests"
FORMATS = ("saved_model", "tflite", "onnx")
WEIGHTS = ("fresh", "trained", "extreme")
CHECKPOINT = "checkpoint "
STEPS = 5


def trained(model):
    """A model after a few steps of Adam toward random targets."""
    import keras
    import numpy as np
    import tensorflow as tf
    from model_cases import inputs

    arrays, random = inputs(model), np.random.default_rng(0)
    optimizer, targets = keras.optimizers.Adam(0.01), None
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            outputs = [each for each in keras.tree.flatten(model(arrays, training=True)) if "float" in str(each.dtype)]
            targets = targets or [random.normal(size=each.shape).astype("float32") for each in outputs]
            pairs = zip(outputs, targets, strict=True)
            loss = sum(keras.ops.mean(keras.ops.square(each - target)) for each, target in pairs)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [each.value for each in variables])
        found = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        optimizer.apply(*zip(*found, strict=True))
    return model


def built(name, weights):
    """A model by name, with fresh, trained or extreme weights."""
    import gate_models
    import keras
    from model_cases import MODELS, TASKS

    keras.utils.set_random_seed(0)
    if name.startswith(CHECKPOINT):
        from keras_transformer.checkpoints import from_huggingface

        model = from_huggingface(ROOT / "data" / "checkpoints" / name.removeprefix(CHECKPOINT), verbose=0)
    else:
        model = (MODELS | TASKS)[name]()
    return {"fresh": gate_models.fresh, "trained": trained, "extreme": gate_models.extreme}[weights](model)


def names():
    """All own models and tasks, and a checkpoint of each type."""
    from every_checkpoint import one_of_each
    from model_cases import MODELS, TASKS

    from checkpoint_cases import FOLDERS

    return [*MODELS, *TASKS, *(CHECKPOINT + folder.name for folder in one_of_each(FOLDERS))]


def export_one(name, options):
    """Appends the records of one model to its file, a line of JSON for each format and weights."""

    path = pathlib.Path(options.one)
    for weights in options.weights:
        known = {each["format"] for each in _records(path) if each["weights"] == weights}
        for format, record in _outcomes(
            name, weights, [each for each in options.formats if each not in known], options
        ):
            with path.open("a") as file:
                file.write(json.dumps({"weights": weights, "format": format, **record}) + "\n")


def _outcomes(name, weights, formats, options):
    """Yields for each format the largest share of what is allowed, or the error. One export tries all formats."""
    from keras_transformer.export import ExportError, export

    for part in [formats, *([each] for each in formats if len(formats) > 1)] if formats else []:
        try:
            with tempfile.TemporaryDirectory() as folder:
                report = export(built(name, weights), f"{folder}/bundle", part, options=_generation(options))
        except ExportError as error:
            if len(part) == 1:
                yield part[0], {"error": f"{type(error).__name__}: {error}"}
            continue
        yield from ((format, {"share": report[format].share}) for format in part)
        if part == formats:
            return


def _generation(options):
    from keras_transformer.export import ExportOptions, GenerationOptions

    steps = GenerationOptions(False, prefill_buckets=())
    return ExportOptions(generation=steps if options.generation else False)


def _records(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _in_a_process(name, options, folder):
    """The records of one model, and the error of its process, or None."""
    path = folder / f"{name}.jsonl"
    command = [sys.executable, __file__, "--one", str(path), "--only", name, "--formats", *options.formats]
    command += ["--weights", *options.weights, *(["--generation"] if options.generation else [])]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    error = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1] if done.returncode else None
    return [each for each in _records(path) if each["format"] in options.formats], error


def _cell(record):
    return record["error"].split(":")[0] if "error" in record else float(f"{record['share']:.2g}")


def parse():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=list(WEIGHTS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--generation", action="store_true", help="the steps of language models, not the forward pass")
    parser.add_argument("--state", metavar="FOLDER", help="keep what is found there, and leave out what it has")
    parser.add_argument("--one", metavar="FILE", help="used for the process of one model")
    return parser.parse_args()


def main():
    options = parse()
    sys.path[:0] = [str(ROOT / "contract"), str(ROOT / "checkpoints")]
    if options.one:
        return export_one(options.only[0], options)
    chosen = options.only or (["vit"] if options.tiny else names())
    libraries = ("keras-transformer", "keras", "tensorflow", "onnxruntime", "ai-edge-litert")
    table, counts = measure.Table("Sound files", measure.versions(*libraries)), {"files": 0, "refused": 0, "errors": 0}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(options.state or folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            found, error = _in_a_process(name, options, folder)
            table.add(model=name, **{f"{each['weights']} {each['format']}": _cell(each) for each in found})
            for each in found:
                counts["files"] += 1
                if "error" in each:
                    is_refused = each["error"].startswith(("ParityError", "WeightError"))
                    counts["refused" if is_refused else "errors"] += 1
                    table.note(f"{name}, {each['weights']}, {each['format']}: {each['error'][:300]}")
            if error:
                table.note(f"{name}: the process ended: {error[:300]}")
    table.note(
        f"{counts['refused']} of {counts['files']} files refused; {counts['errors']} not written for other reasons"
    )
    table.finish(options.json)
    return int(counts["refused"] > 0)


if __name__ == "__main__":
    sys.exit(main())
