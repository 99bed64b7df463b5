"""Score and size of three trained models after quantization, in every runtime.

    python benchmarks/quantized_tasks.py --task translation --model translation/model.keras --data-dir multi30k
    python benchmarks/quantized_tasks.py --task translation --model ... --modes 4/32 4/row --methods nearest gptq
    python benchmarks/quantized_tasks.py --task sst2 --model text_classification/model.keras --data-dir sentences
    python benchmarks/quantized_tasks.py --task cifar10 --model image_classification/model.keras --data-dir cifar10
    python benchmarks/quantized_tasks.py --task cifar10 --tiny    # smoke test: a tiny model and random images

The models are those of the examples. The score is BLEU (tokenized, lower-cased, greedy decoding) or accuracy in percent over
the whole test set; that of the float file is measured in the same runtime and run. A mode such as "4/32" is a scheme,
bits/block: the weights are chosen in Keras by each of `--methods`, with data of training, and the files have these integers;
ONNX and TFLite files round activations to 8 bits.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import itertools
import pathlib
import tempfile

import numpy as np
from measure import Table, arguments, module_of, versions
from quantization_methods import METHODS, scheme_of

from keras_transformer import load_model, text
from keras_transformer.export import Evaluation, ExportOptions, Int8Static, export, load
from keras_transformer.quantization import quantize_weights

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
MODES = ("int8", "weight_int8", "weight_int4", "fp16")


def translation(arguments):
    script = module_of(EXAMPLES / "translation.py")
    splits = script.load_data(arguments.data_dir, quick=arguments.tiny)
    sources, references = splits["test_2016_flickr"]
    options = {"max_new_tokens": script.MAX_NEW_TOKENS, "batch_size": 100}

    def bleu(model):
        return script.score(model.generate(list(sources), **options), references)["BLEU (tokenized, lower-cased)"]

    batches = script.batches(load_model(arguments.model).tokenizer, splits["train"], seed=0).epoch()
    return Evaluation(score=bleu), [inputs for inputs, *_ in itertools.islice(batches, 32)]


def sst2(arguments):
    script = module_of(EXAMPLES / "text_classification.py")
    tokenizer = text.load_tokenizer(arguments.tokenizer or arguments.model.parent / "pretrained" / "tokenizer")
    pairs = script.read(arguments.data_dir, "stsa.binary.test")
    pairs = pairs[:100] if arguments.tiny else pairs
    batches = [pairs[start : start + 50] for start in range(0, len(pairs), 50)]
    options = {"start": True, "end": True, "max_length": script.MAX_LENGTH}
    inputs = [_padded(tokenizer.encode([sentence for sentence, _ in batch], **options)) for batch in batches]
    labels = [np.array([label for _, label in batch]) for batch in batches]
    return _in_percent(inputs, labels), inputs[:4]


def cifar10(arguments):
    from keras_transformer.data import load_images

    step = 100
    if arguments.data_dir is None:
        random = np.random.default_rng(0)
        images, labels = random.integers(0, 256, (2 * step, 32, 32, 3)), random.integers(0, 10, 2 * step)
    else:
        images, labels = load_images(data_dir=arguments.data_dir).test
    count = 2 * step if arguments.tiny else len(labels)
    starts = range(0, count, step)
    inputs = [{"images": images[start : start + step].astype("float32")} for start in starts]
    return _in_percent(inputs, [labels[start : start + step] for start in starts]), inputs[:4]


def _padded(rows):
    length = max(map(len, rows))
    lengths = np.array([len(row) for row in rows])
    ids = np.array([[*row, *[0] * (length - len(row))] for row in rows], "int32")
    return {"token_ids": ids, "padding_mask": np.arange(length) < lengths[:, None]}


def _in_percent(inputs, labels):
    """Accuracy and agreement in percent, on the scale of BLEU."""

    def accuracy(model):
        found = [next(iter(model(batch).values())).argmax(-1) for batch in inputs]
        return 100 * float(np.mean(np.concatenate(found) == np.concatenate(labels)))

    return Evaluation(inputs, score=accuracy)


def toy_classifier():
    """Returns an untrained ViT instead of the one that the example trains on CIFAR-10."""
    from keras_transformer import models, tasks

    return tasks.ImageClassifier(models.ViT(models.Size(1, 64, 2, 64), patch_size=8, image_size=32), 10)


TASKS = {"translation": translation, "sst2": sst2, "cifar10": cifar10}


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--model", type=pathlib.Path, help=".keras file written by the example")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="its tokenizer, if it is not in the same folder")
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument(
        "--modes", nargs="+", default=["int8"], help=f"of {', '.join(MODES)}, int8_static, or schemes such as 4/32"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["gptq"], help="of the schemes")
    parser.add_argument("--formats", nargs="+", default=["saved_model", "tflite", "onnx"])
    options = parser.parse_args()
    options.is_toy = options.tiny and options.task == "cifar10" and options.model is None
    if not options.is_toy and (options.model is None or options.data_dir is None):
        parser.error("--model and --data-dir are required")
    return options


class Exports:
    """Exports of a model, measured: rows of a table.

    Args:
        options: the options of the command.
    """

    def __init__(self, options):
        self.options = options
        self.evaluation, self.calibration = TASKS[options.task](options)
        self._probes = {"probes": self.calibration[:1]} if options.task == "cifar10" else {}
        self._expected = {}

    def model(self):
        return toy_classifier() if self.options.is_toy else load_model(self.options.model)

    def of_mode(self, mode):
        """The rows of a mode of quantization, whose report has the scores."""
        quantize = Int8Static(self.calibration) if mode == "int8_static" else mode
        with tempfile.TemporaryDirectory() as folder:
            report = self._export(
                self.model(), folder, quantize=quantize, options=ExportOptions(evaluation=self.evaluation)
            )
        for name, artifact in report.artifacts.items():
            figures = artifact.evaluation
            agreement = figures["agreement"] and round(figures["agreement"], 4)
            scores = _scores(figures["score_float"], figures["score"])
            yield dict(mode=mode, format=name, **scores, agreement=agreement, **_sizes(artifact, artifact.float_size))

    def of_scheme(self, mode, method):
        """The rows of weights that are chosen by a method, in files of the same integers."""
        if not self._expected:
            self._expected = self._measured(self.model())
        model = self.model()
        quantize_weights(model, scheme_of(mode), METHODS[method], self.calibration)
        for name, (artifact, score) in self._measured(model, quantize="learned").items():
            whole, expected = self._expected[name]
            yield dict(mode=f"{mode} {method}", format=name, **_scores(expected, score), **_sizes(artifact, whole.size))

    def _export(self, model, folder, **options):
        return export(model, f"{folder}/bundle", self.options.formats, progress=False, **self._probes, **options)

    def _measured(self, model, **options):
        """Each format's artifact and score."""
        with tempfile.TemporaryDirectory() as folder:
            artifacts = self._export(model, folder, **options).artifacts
            return {
                name: (artifact, self.evaluation.score(load(f"{folder}/bundle", name)))
                for name, artifact in artifacts.items()
            }


def _scores(expected, found):
    return {"float_score": round(expected, 2), "score": round(found, 2), "change": round(found - expected, 2)}


def _sizes(artifact, whole):
    return {"bytes": artifact.size, "of_float": round(artifact.size / whole, 3)}


def main():
    options = parse()
    exports = Exports(options)
    table = Table(f"{options.task}: loss by quantization", versions("tensorflow", "onnxruntime", "ai-edge-litert"))
    for mode in options.modes:
        groups = (
            [exports.of_scheme(mode, method) for method in options.methods] if "/" in mode else [exports.of_mode(mode)]
        )
        for row in itertools.chain(*groups):
            table.add(**row)
    table.finish(options.json)


if __name__ == "__main__":
    main()
