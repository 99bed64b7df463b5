"""BLEU and time per token of a smaller translation model: pruned, then distilled from the whole one.

    python benchmarks/student.py --model translation/model.keras --data-dir multi30k --out student
    python benchmarks/student.py --model translation/model.keras --data-dir multi30k --out longer \
        --student student/student.keras --references    # a student is trained further
    python benchmarks/student.py --tiny    # smoke test: a tiny model and a few sentences

The teacher is the model that `examples/translation.py` writes. The blocks of its decoder that matter least go, since each
new token costs all of the decoder; the encoder, which runs once for a sentence, stays (a deep encoder and a shallow decoder:
Kasai et al., arXiv 2006.10369). The student then learns from the teacher: its translations of the training sentences in
place of the references (Kim and Rush, arXiv 1606.07947, section 3.2), or both with `--references`, and its probabilities of
each next subword. BLEU is of greedy translations of test_2016_flickr, by the exported files; the times are those of the
files, in turns.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dataclasses
import itertools
import pathlib
import tempfile
import time

import keras
import numpy as np
from measure import Table, Turn, arguments, limit_tensorflow_threads, ratio, ratio_note, take_turns, timed, versions
from quantized_tasks import example

from keras_transformer import load_model, training
from keras_transformer.backend import keras_private
from keras_transformer.export import export, load

TEMPERATURE, MASK, SENTENCES = 1.0, "target_padding_mask", 20


def beginning(teacher, batches, options):
    """The student before it learns: one that was written before, or the pruned teacher, with the dropout of a student."""
    student = load_model(options.student, compile=False) if options.student else pruned(teacher, batches, options)
    for layer in keras_private.flatten_layers(student):
        # A small student of soft labels underfits with the dropout of its teacher.
        if isinstance(layer, keras.layers.Dropout) and layer.rate:
            layer.rate = options.dropout
    return student


def pruned(teacher, batches, options):
    """The teacher without some blocks of its decoder, and some feed-forward units."""
    found = training.measure_importance(teacher, batches, training.MaskedCrossentropy())
    decoder = {name: value for name, value in found.blocks.items() if "decoder" in name}
    print({name: round(value, 4) for name, value in found.blocks.items()}, flush=True)
    found = dataclasses.replace(found, blocks=decoder)
    return training.prune(
        teacher, blocks=len(decoder) - options.decoder_blocks, feedforward_units=options.units, importance=found
    )


def translated(bundle, sources, options):
    """Translations of sentences by the teacher's ONNX file, the longest first so that batches are of alike lengths."""
    runtime = load(bundle, "onnx")
    order = np.argsort([-len(source) for source in sources], kind="stable")
    found = runtime.generate([sources[index] for index in order], **options)
    result = [""] * len(sources)
    for index, line in zip(order, found, strict=True):
        result[index] = line
    return result


def learn(script, student, teacher, stream, options):
    """Trains the student, with averaged weights at the end."""
    steps = len(stream) * options.epochs
    schedule = training.WarmupCosine(options.learning_rate, warmup_steps=max(1, steps // 20), total_steps=steps)
    optimizer = keras.optimizers.Adam(
        schedule, beta_2=0.98, global_clipnorm=1.0, use_ema=True, ema_momentum=1 - 1 / max(2, min(500, steps // 8))
    )
    trainer = training.Distillation(
        student, teacher, logits=training.SoftLogits(TEMPERATURE, mask=MASK), label_weight=options.label_weight
    )
    trainer.compile(optimizer, training.MaskedCrossentropy(script.LABEL_SMOOTHING), jit_compile=False)
    trainer.fit(
        stream.repeat(),
        steps_per_epoch=len(stream),
        epochs=options.epochs,
        callbacks=[training.AveragedWeights()],
        shuffle=False,
        verbose=2,
    )


def per_token(script, runtimes, sources):
    """Turns of each runtime: the time of translating some sentences, divided by the tokens."""
    tokens = {}

    def run(name):
        found = runtimes[name].generate(sources, max_new_tokens=script.MAX_NEW_TOKENS, batch_size=1)
        tokens[name] = sum(map(len, runtimes[name].tokenizer.encode(found)))

    turns = take_turns({name: timed(lambda name=name: run(name)) for name in runtimes}, 5)
    return {
        name: [Turn(turn.wall / tokens[name], turn.cpu / tokens[name]) for turn in each] for name, each in turns.items()
    }


def measure(table, script, models, test, options):
    sources, references = test
    settings = {"max_new_tokens": script.MAX_NEW_TOKENS, "batch_size": 100}
    with tempfile.TemporaryDirectory() as folder:
        reports = {
            name: export(model, f"{folder}/{name}", options.formats, progress=False) for name, model in models.items()
        }
        for form in options.formats:
            runtimes = {name: load(f"{folder}/{name}", form) for name in models}
            turns = per_token(script, runtimes, list(sources[:SENTENCES]))
            for name, runtime in runtimes.items():
                found = script.score(runtime.generate(list(sources), **settings), references)
                times = ratio(turns[name], turns["teacher"])
                table.add(
                    model=name,
                    format=form,
                    parameters=models[name].count_params(),
                    MB=round(reports[name][form].size / 1e6, 2),
                    bleu=round(found["BLEU (tokenized, lower-cased)"], 2),
                    chrf=round(found["chrF"], 2),
                    ms_per_token=round(1e3 * sorted(turn.wall for turn in turns[name])[len(turns[name]) // 2], 3),
                    **{f"time_{key}": value for key, value in times.items()},
                )


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, help=".keras file written by the example")
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the student, and the teacher's translations")
    parser.add_argument("--student", type=pathlib.Path, help=".keras file of a student to train further")
    parser.add_argument("--references", action="store_true", help="learn from the prefixes of the references, too")
    parser.add_argument("--decoder-blocks", type=int, default=1, help="that the student keeps")
    parser.add_argument("--units", type=float, default=0.0, help="share of feed-forward units that go")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.1, help="of the student")
    parser.add_argument("--label-weight", type=float, default=0.5)
    parser.add_argument("--formats", nargs="+", default=["tflite", "onnx"])
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    options = parser.parse_args()
    if not options.tiny and not (options.model and options.data_dir and options.out):
        parser.error("--model, --data-dir and --out are needed without --tiny")
    return options


def tiny(script):
    """An untrained model, and splits of a few sentences."""
    from keras_transformer import models, text

    lines = [f"a {first} {second}" for first, second in itertools.product(["one", "two", "three"], ["dogs", "cats"])]
    tokenizer = text.SentencePiece.train(lines * 4, 280)
    model = script.build_model(tokenizer, models.Size(2, 32, 2, 32))
    return model, dict.fromkeys(("train", "val", "test_2016_flickr"), (lines, lines))


def teacher_translations(script, teacher, splits, folder):
    """Those of the training sentences, which are written to a file, and read from there the next time."""
    path = folder / "teacher.txt"
    if not path.exists():
        with tempfile.TemporaryDirectory() as bundle:
            export(teacher, f"{bundle}/teacher", ["onnx"], progress=False)
            settings = {"max_new_tokens": script.MAX_NEW_TOKENS, "batch_size": 100}
            lines = translated(f"{bundle}/teacher", list(splits["train"][0]), settings)
        path.write_text("\n".join(line.replace("\n", " ") for line in lines) + "\n")
    return path.read_text().splitlines()


def main():
    options, script = parse(), example("translation")
    if options.threads:
        limit_tensorflow_threads(options.threads)
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.tiny:
            options.epochs = 1
            teacher, splits = tiny(script)
        else:
            teacher, splits = load_model(options.model, compile=False), script.load_data(options.data_dir, quick=False)
        table = Table("A distilled and pruned translation model", versions("keras", "tensorflow", "onnxruntime"))
        start = time.process_time()
        targets = teacher_translations(script, teacher, splits, folder)
        print(f"translated in {(time.process_time() - start) / 60:.1f} minutes of CPU time", flush=True)
        sample = script.batches(teacher.tokenizer, splits["val"], shuffle=False).epoch()
        student = beginning(teacher, [batch[:2] for batch in itertools.islice(sample, 16)], options)
        sources, references = splits["train"]
        pairs = ([*sources, *sources], [*targets, *references]) if options.references else (sources, targets)
        stream = script.batches(teacher.tokenizer, pairs, seed=0)
        learn(script, student, teacher, stream, options)
        minutes = (time.process_time() - start) / 60
        student.save(folder / "student.keras")
        measure(table, script, {"teacher": teacher, "student": student}, splits["test_2016_flickr"], options)
    table.note(f"The student took {minutes:.1f} minutes of CPU time.")
    table.note(ratio_note(5))
    table.finish(options.json)


if __name__ == "__main__":
    main()
