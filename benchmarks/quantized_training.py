"""Accuracy of a classifier with weights of few bits: rounded, trained, and trained with the float model as teacher.

    python benchmarks/quantized_training.py --dataset trec --model text_classification/model.keras --data-dir sentences
    python benchmarks/quantized_training.py --dataset sst2 --model ... --schemes 2/32 4/row:8 --seeds 0 1 2
    python benchmarks/quantized_training.py --dataset cifar10 --model image_classification/model.keras --data-dir cifar10
    python benchmarks/quantized_training.py --tiny    # smoke test: a tiny model and sentences of random words

The model, and the tokenizer of one for sentences, are those that `examples/text_classification.py` and
`examples/image_classification.py` write; its training goes on, with the weights rounded in the forward pass. "rounded" and
"gptq" do not train. A scheme is bits/block, "2/32+min" with minima, "4/row:8" with activations of 8 bits in training; files
always have these but SavedModels. The accuracy, in percent of the test set, is that of the exported files in each runtime,
which have the integers that were trained; `lost` is the float model's in Keras less the mean of the runtimes.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import contextlib
import io
import itertools
import pathlib
import tempfile
import time

import keras
import numpy as np
from measure import Table, arguments, versions
from quantization_methods import scheme_of
from quantized_tasks import example

from keras_transformer import load_model, text, training
from keras_transformer.data import load_images
from keras_transformer.export import export, load
from keras_transformer.quantization import quantize_weights

# The methods of the ways that do not train.
UNTRAINED = {"rounded": "nearest", "gptq": "gptq"}
SCHEMES, WAYS = ("2/32", "4/row:8"), (*UNTRAINED, "trained", "teacher")
FORMATS = ("saved_model", "tflite", "onnx")
# The parameters of scales, which decay would shrink.
SCALES = ["bias", "gamma", "beta", "relative_step", "minimum"]
TEMPERATURE = 2.0


class Task:
    """A classifier of an example, its data and its training.

    Args:
        options: the options of the command.
        script: the module of the example.
    """

    def __init__(self, options, script):
        self.options, self.script = options, script

    def model(self):
        return load_model(self.options.model, compile=False)

    def arguments(self, seed):
        """Those of the example's training."""
        return argparse.Namespace(
            epochs=self.options.epochs, seed=seed + 10, learning_rate=self.options.learning_rate, batch_size=64
        )

    def accuracy(self, predict):
        """In percent of the test set, by a function of a batch of inputs that returns scores of classes."""
        pairs = [(predict(x).argmax(-1) == np.asarray(y)) for x, y in self.test()]
        return 100 * float(np.mean(np.concatenate(pairs)))

    def in_keras(self, model):
        return self.accuracy(lambda x: np.asarray(model.predict_on_batch(x)))

    def in_runtimes(self, model):
        """The accuracies of the exported files by format, and the size of the last one in kB."""
        with tempfile.TemporaryDirectory() as folder:
            options = {"probes": self.probes(), "quantize": "learned", "progress": False}
            report = export(model, f"{folder}/bundle", self.options.formats, **options)
            found = {}
            for name in self.options.formats:
                runtime = load(f"{folder}/bundle", name)
                found[name] = self.accuracy(lambda x, runtime=runtime: next(iter(runtime(x).values())))
            return found, report[self.options.formats[-1]].size / 1e3


class Sentences(Task):
    """A classifier of sentences, with the splits and the tokenizer of its example."""

    def __init__(self, options, script, splits, tokenizer):
        super().__init__(options, script)
        self.splits, self.tokenizer = splits, tokenizer
        script.LEARNING_RATE = options.learning_rate
        self._compile, script.compile_model = script.compile_model, self._compiled

    def _compiled(self, model, learning_rate, steps, **others):
        self._compile(model, learning_rate, steps, **others)
        model.optimizer.exclude_from_weight_decay(var_names=SCALES)

    def train(self, model, seed):
        self.script.train(model, self.tokenizer, self.splits, self.arguments(seed))

    def _batches(self, split):
        pairs = self.script.batches(self.tokenizer, self.splits[split], shuffle=False).epoch()
        return (({name: np.asarray(value) for name, value in x.items()}, y) for x, y, *_ in pairs)

    def test(self):
        return self._batches("test")

    def calibration(self):
        return [x for x, _ in itertools.islice(self._batches("dev"), 16)]

    def probes(self):
        return None

    def of_outputs(self):
        return {"logits": training.SoftLogits(TEMPERATURE), "label_weight": 0.0}


class Images(Task):
    """A classifier of images, with the data of its example."""

    def __init__(self, options, script):
        super().__init__(options, script)
        self.data = load_images(data_dir=options.data_dir)
        script.WEIGHT_DECAY = 0.0  # Scales would decay too.

    def train(self, model, seed):
        self.script.train(model, self.data, self.arguments(seed), use_xla=False)

    def test(self):
        images, labels = self.data.test
        starts = range(0, len(labels), 500)
        return (
            ({"images": images[start : start + 500].astype("float32")}, labels[start : start + 500]) for start in starts
        )

    def calibration(self):
        return [{"images": self.data.train.images[start : start + 64].astype("float32")} for start in range(0, 256, 64)]

    def probes(self):
        return [{"images": self.data.test.images[:5].astype("float32")}]

    def of_outputs(self):
        return {"logits": None}  # The outputs are probabilities: the labels teach them.


def small(task, way, scheme, bits, seed):
    """A model with few bits, made one way."""
    model = task.model()
    if way in UNTRAINED:
        quantize_weights(model, scheme, UNTRAINED[way], task.calibration())
        return model
    student = training.quantization_aware(model, scheme, activations=bits)
    keras.utils.set_random_seed(seed)
    if way == "trained":
        trained = student
    else:
        teacher = task.model()
        names = [layer.name for layer in model.layers if "block" in layer.name]
        names = names or [layer.name for layer in model.layers[1].layers if "block" in layer.name]
        states = training.HiddenStates({name: name for name in names})
        trained = training.Distillation(student, teacher, hidden_states=states, **task.of_outputs())
    with contextlib.redirect_stdout(io.StringIO()):
        task.train(trained, seed)
    return training.learned_model(student)


def measure(table, task, options):
    reference = task.in_keras(task.model())
    table.add(scheme="float32", way="-", seed="-", keras=round(reference, 2))
    for name in options.schemes:
        plain, _, bits = name.partition(":")
        for way in options.ways:
            for seed in options.seeds[:1] if way in UNTRAINED else options.seeds:
                start = time.process_time()
                model = small(task, way, scheme_of(plain), int(bits) if bits else None, seed)
                minutes = (time.process_time() - start) / 60
                found, size = task.in_runtimes(model)
                row = {"keras": task.in_keras(model), **found}
                lost = reference - float(np.mean(list(found.values())))
                figures = {key: round(value, 2) for key, value in (row | {"lost": lost}).items()}
                table.add(scheme=name, way=way, seed=seed, **figures, kB=round(size, 1), minutes=round(minutes, 2))


def tiny(folder):
    """A model of the example with random weights, written to a folder, with sentences of random words."""
    from keras_transformer import models, tasks

    random = np.random.default_rng(0)
    words = [f"w{index}" for index in range(40)]
    pairs = [(" ".join(random.choice(words, 6)), int(random.integers(0, 2))) for _ in range(60)]
    tokenizer = text.WordPiece.train([sentence for sentence, _ in pairs], 120)
    tokenizer.save(folder / "tokenizer")
    encoder = models.Encoder(models.Size(1, 64, 2, 64), tokenizer.vocabulary_size, position="rotary")
    tasks.SequenceClassifier(encoder, 2, activation=None).save(folder / "model.keras")
    return {"train": pairs[:40], "dev": pairs[40:50], "test": pairs[50:]}


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("trec", "sst2", "cifar10"), default="trec")
    parser.add_argument("--model", type=pathlib.Path, help=".keras file written by the example")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="its tokenizer, if it is not in pretrained/ beside it")
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    options = parser.parse_args()
    if not options.tiny and not (options.model and options.data_dir):
        parser.error("--model and --data-dir are needed without --tiny")
    return options


def task_of(options, folder):
    if options.dataset == "cifar10":
        return Images(options, example("image_classification"))
    script = example("text_classification")
    if options.tiny:
        splits = tiny(folder)
        options.model, options.epochs, options.schemes = folder / "model.keras", 1, ["2/32:8"]
        options.tokenizer = folder / "tokenizer"
    else:
        splits = script.read_splits(options.data_dir, options.dataset)
    tokenizer = text.load_tokenizer(options.tokenizer or options.model.parent / "pretrained" / "tokenizer")
    return Sentences(options, script, splits, tokenizer)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(options, pathlib.Path(folder))
        packages = versions("keras-transformer", "keras", "tensorflow", "onnxruntime", "ai-edge-litert")
        table = Table(f"{options.dataset}: weights of few bits", packages)
        measure(table, task, options)
    table.finish(options.json)


if __name__ == "__main__":
    main()
