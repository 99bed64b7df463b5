"""Parity with Keras and size of every model and task in three formats, in float32 and int8.

    python benchmarks/every_model.py
    python benchmarks/every_model.py --modes int8 weight_int4 --only "language model"

Each model has random weights and is exported in a separate process. A cell is the largest difference from Keras relative to
the output scale; a quantized cell also has the size relative to the float file. Errors are in their cells.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import subprocess
import sys
import tempfile

from measure import Table, versions

FORMATS = ("saved_model", "tflite", "onnx")


def cases(tiny=False):
    """Returns a dict of name to a function that builds the model."""
    from keras_transformer import models, tasks
    from keras_transformer.attention import MultiHeadAttention

    size, words = (models.Size(1, 64, 2, 64), 50) if tiny else (models.Size(4, 128, 4, 512), 4000)

    def encoder(**options):
        return models.Encoder(size, words, max_sequence_length=64, **options)

    def decoder(**options):
        return models.Decoder(size, words, max_sequence_length=64, **options)

    grouped = MultiHeadAttention(
        size.num_heads, size.hidden_dim // size.num_heads, num_key_value_heads=2, position="rotary"
    )
    return {
        "ViT": lambda: models.ViT(size, patch_size=8, image_size=32),
        "Encoder": encoder,
        "Encoder, rotary, gated, RMS": lambda: encoder(position="rotary", feedforward="gated", norm="rms_norm"),
        "Decoder": decoder,
        "Transformer": lambda: models.Transformer(size, words),
        "image classifier": lambda: tasks.ImageClassifier(models.ViT(size, patch_size=8, image_size=32), 10),
        "sequence classifier": lambda: tasks.SequenceClassifier(encoder(), 3),
        "pair classifier": lambda: tasks.PairClassifier(encoder(num_segments=2), 3),
        "pair matcher": lambda: tasks.PairMatcher(encoder()),
        "tagger": lambda: tasks.Tagger(encoder(), 9),
        "span answerer": lambda: tasks.SpanAnswerer(encoder(num_segments=2)),
        "masked language model": lambda: tasks.MaskedLanguageModel(encoder()),
        "language model": lambda: tasks.LanguageModel(decoder(), end_id=1),
        "language model, grouped heads, rotary": lambda: tasks.LanguageModel(
            decoder(position="rotary", attention=grouped, feedforward="gated", norm="rms_norm"), end_id=1
        ),
        "sequence to sequence": lambda: tasks.LanguageModel(models.Transformer(size, words), start_id=2, end_id=1),
    }


def export_one(name, options):
    """Prints the record of one model as JSON: mode -> format -> figures, or the error."""
    import keras

    from keras_transformer.export import ExportError, export

    keras.utils.set_random_seed(0)
    model, found = cases(options.tiny)[name](), {}
    for mode in ("float32", *options.modes):
        for format in options.formats:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    quantize = None if mode == "float32" else mode
                    artifact = export(model, f"{folder}/bundle", [format], quantize=quantize)[format]
                record = {"ratio": artifact.ratio, "bytes": artifact.size, "float_bytes": artifact.float_size}
            except ExportError as error:
                record = {"error": f"{type(error).__name__}: {error}"}
            found.setdefault(mode, {})[format] = record
    print(json.dumps(found))


def _in_a_process(name, options):
    """Runs the export in a separate process, because converters crash and leak."""
    command = [sys.executable, __file__, "--one", name, "--modes", *options.modes, "--formats", *options.formats]
    command += ["--tiny"] if options.tiny else []
    return subprocess.run(command, capture_output=True, text=True)


def cell(record):
    if "error" in record:
        return record["error"].split(":")[0]
    share = f" {record['bytes'] / record['float_bytes']:.2f}" if record["float_bytes"] else ""
    return f"{record['ratio']:.0e}{share}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--modes", nargs="*", default=["int8"])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--tiny", action="store_true", help="smoke test with tiny networks")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return export_one(options.one, options)
    table = Table("Every model, from Keras", versions("tensorflow", "keras", "onnxruntime", "ai-edge-litert"))
    errors = []
    for name in options.only or cases():
        done = _in_a_process(name, options)
        if done.returncode:
            errors.append(f"{name}: the process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
            table.add(model=name, **{f"float32 {format}": "no result" for format in options.formats})
            continue
        record = json.loads(done.stdout.splitlines()[-1])
        table.add(
            model=name,
            **{f"{mode} {format}": cell(each[format]) for mode, each in record.items() for format in each},
        )
        errors += [
            f"{name}, {mode}: {each['error']}"
            for mode, row in record.items()
            for each in row.values()
            if "error" in each
        ]
    for error in errors:
        table.note(error)
    table.finish(options.json)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
