"""The power of the gate: faults planted in the files of nine models, and how many of them an export refuses.

    python benchmarks/gate_power.py [--models gpt_16 ...] [--formats onnx ...] [--state FOLDER] [--json FILE]

The faults are of three groups. `weight`: every kind of weight of a model, changed in several ways, in the written file.
`operation`: a layer that computes something else while the graph is traced. `signature`: what a file does with its inputs
and outputs, in front of its runtime and behind it. The references and their rounding are those of the sound model.

A fault is caught if the comparison of the weights or that of the outputs refuses the file; the columns `by weights` and
`by outputs` count each alone. Sound files with fresh, random and extreme weights must be accepted. Each model has a process
of its own; with `--state`, a run that was stopped goes on where it was.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import measure

MODELS = ("pictures_4", "spans_2", "t5_3", "rwkv_3", "detector_4", "vit_6", "grouped_8", "gpt_16", "decoder_64")
FORMATS = ("saved_model", "tflite", "onnx")
AGAIN = 75
WORKER = pathlib.Path(__file__).with_name("gate_worker.py")


def records(name, formats, folder, most=None):
    """The records of one model, and the error of its process, or None; of at most some faults of each group."""
    path, status = folder / f"{name}.jsonl", AGAIN
    while status == AGAIN:
        command = [sys.executable, str(WORKER), name, str(path), "--formats", *formats]
        command += [] if most is None else ["--most", str(most)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        status = done.returncode
    lines = path.read_text().splitlines() if path.exists() else []
    error = (done.stderr.strip().splitlines() or [f"ended with {status}"])[-1] if status else None
    return [each for each in map(json.loads, lines) if each["format"] in formats], error


def row_of(name, format, found):
    """The row of one model and format."""
    faults = [each for each in found if each["group"] != "sound"]
    sound = [each for each in found if each["group"] == "sound"]
    groups = collections.Counter(each["group"] for each in faults)
    row = {"model": name, "format": format, "faults": len(faults)}
    row |= {group: groups[group] for group in ("weight", "operation", "signature")}
    row["caught"] = sum(_is_refused(each) for each in faults)
    row["by weights"] = sum(each["weights"] is not None for each in faults)
    row["by outputs"] = sum(each["outputs"] is not None for each in faults)
    return row | {"sound": len(sound), "refused": sum(map(_is_refused, sound))}


def _is_refused(record):
    return record["weights"] is not None or record["outputs"] is not None


def add_rows(table, name, formats, found):
    """Adds the rows of one model, and a note for each wrong decision."""
    for format in formats:
        own = [each for each in found if each["format"] == format]
        table.add(**row_of(name, format, own))
        for each in own:
            if each["group"] == "sound" and _is_refused(each):
                table.note(f"refused: {name}, {format}, {each['fault']}: {each['weights'] or each['outputs']}")
            elif each["group"] != "sound" and not _is_refused(each):
                table.note(f"not caught: {name}, {format}, {each['group']}: {each['fault']}")


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--state", metavar="FOLDER", help="keep what is found there, and leave out what it has")
    options = parser.parse_args()
    libraries = ("keras-transformer", "keras", "tensorflow", "onnxruntime", "ai-edge-litert")
    table, kinds = measure.Table("Planted faults", measure.versions(*libraries)), set()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(options.state or folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.models[:1] if options.tiny else options.models:
            found, error = records(name, options.formats, folder, 2 if options.tiny else None)
            add_rows(table, name, options.formats, found)
            kinds |= {(each["group"], each["fault"]) for each in found if each["group"] != "sound"}
            if error:
                table.note(f"error: {name}: {error}")
    table.note(f"{len(kinds)} kinds of faults; a caught one is refused by the weights or by the outputs")
    table.finish(options.json)
    return int(any(line.startswith(("refused", "not caught", "error")) for line in table.notes))


if __name__ == "__main__":
    sys.exit(main())
