"""Parity of a checkpoint of each architecture with transformers, in three formats.

    python benchmarks/every_checkpoint.py
    python benchmarks/every_checkpoint.py --only t5-ConditionalGeneration whisper-ConditionalGeneration
    python benchmarks/every_checkpoint.py --all

The checkpoints are the small ones of tests/data/checkpoints, with outputs and greedy texts of transformers. The cell of a
format is the largest difference of an output at valid tokens, relative to the output scale (at least 10); `absolute` is the
largest of all three; `same` counts the texts that are equal token by token, of `texts` over all three. Each checkpoint is
exported in a separate process.
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
FORMATS = ("saved_model", "tflite", "onnx")
# T5 does not scale its scores, and the random weights are large: rounding changes its logits by 1e-4 of their scale.
TOLERANCES = {"t5-ConditionalGeneration": 2e-4}
sys.path.insert(0, str(ROOT / "checkpoints"))


def one_of_each(folders):
    """Returns one folder per model type: one that generates, else one with a head."""

    def rank(folder):
        name = folder.name.partition("-")[2]
        return ("Generation" in name) + ("LM" in name) + ("MTModel" in name), name != "Model", -len(name), name

    types = {}
    for folder in folders:
        model_type = json.loads((folder / "config.json").read_text())["model_type"]
        types[model_type] = max(types.get(model_type, folder), folder, key=rank)
    return sorted(types.values())


def export_one(folder):
    """Prints the figures of one checkpoint as JSON."""
    from checkpoint_cases import Expected, difference
    from keras_transformer.checkpoints import from_huggingface
    from keras_transformer.export import ExportOptions, export, load

    model, expected, found, absolute, same = from_huggingface(folder, verbose=0), Expected(folder), {}, [], []
    tolerance = TOLERANCES.get(folder.name)
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/forward", options=ExportOptions(generation=False, tolerance=tolerance))
        if expected.generated is not None:
            export(model, f"{folder}/language", options=ExportOptions(tolerance=tolerance))
        for format in FORMATS:
            outputs = load(f"{folder}/forward", format)(expected.inputs)
            outputs = outputs if isinstance(outputs, dict) else {"output": outputs}
            found[format], difference_here = difference(outputs, expected.outputs, expected.inputs)
            absolute.append(difference_here)
            if expected.generated is not None:
                new = expected.generated.shape[1]
                texts = load(f"{folder}/language", format).generate(expected.prompts, max_new_tokens=new)
                same += [ours == theirs for ours, theirs in zip(texts, expected.texts, strict=True)]
    found["absolute"] = max(absolute)
    print(json.dumps(found | ({"texts": len(same), "same": sum(same)} if same else {})))


def _in_a_process(folder):
    """Runs the export in a separate process, because converters crash and leak."""
    done = subprocess.run([sys.executable, __file__, "--one", str(folder)], capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def _short(value):
    return float(f"{value:.1e}") if isinstance(value, float) else value


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--only", nargs="+", metavar="FOLDER", help="these folders of tests/data/checkpoints")
    parser.add_argument("--all", action="store_true", help="every folder instead of one per model type")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.one:
        return export_one(pathlib.Path(options.one))
    from checkpoint_cases import FOLDERS

    chosen = FOLDERS if options.all else one_of_each(FOLDERS)
    if options.only:
        chosen = [ROOT / "data" / "checkpoints" / name for name in options.only]
    table = Table("Checkpoints, from transformers", versions("tensorflow", "keras", "onnxruntime", "ai-edge-litert"))
    for folder in chosen:
        figures = _in_a_process(folder)
        table.add(checkpoint=folder.name, **{key: _short(value) for key, value in figures.items()})
    table.finish(options.json)
    return int(any("error" in row for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
