"""Perplexity of a language model by the method and the scheme that its weights are quantized with, in Keras.

    python benchmarks/quantization_methods.py --model model.gguf --text manual.txt
    python benchmarks/quantization_methods.py --model model.keras --tokens tokens.npy --methods nearest gptq --schemes 4/32
    python benchmarks/quantization_methods.py --tiny    # smoke test: a tiny model and random tokens

The first `TEST` tokens are the test; calibration takes rows of the text behind them. A scheme is bits/block: "4/32",
"4/row", "4/32+min" with minima. Products are quantized with it, tables of embeddings with 8 bits. The methods are those of
`METHODS` below; "rotate+" before one rotates the residual stream first, with a head of its own, and "+scales" behind one
trains the scales and norms afterwards, with the float model as teacher, on `--rows` rows. With `--formats onnx tflite` the
quantized models are exported, and the perplexities of the files stand beside that in Keras. Peers: those of
`quantization_peers.METHODS` round the same weights, "ai_edge_gptq" by the same calibration; "keras_gptq" and "keras_awq" are
those of Keras on the same rows, with the tables in float; its AWQ has 4 bits and minima only. With `--libraries` and
`--files Q4_0 Q4_K_M`, llama.cpp's quantizer writes files of its own kinds from the float model, without data.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import tempfile
import threading
import time

import numpy as np
import quantization_peers
from measure import Table, arguments, versions

from keras_transformer.export import export
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.formats import get_format
from keras_transformer.export.loading.load import available_cores
from keras_transformer.export.verification.quantized.predictions import Predictions
from keras_transformer.export.verification.quantized.reading import logits_of
from keras_transformer.quantization import AWQ, GPTQ, Clipping, Nearest, WeightScheme, quantize_weights, rotate
from keras_transformer.tasks import untie_embeddings
from keras_transformer.training import train_scales

LENGTH, TEST = 512, 20_480
METHODS = {
    "nearest": Nearest(),
    "clipping": Clipping(),
    "gptq, no sweeps": GPTQ(sweeps=0),
    "gptq": GPTQ(),
    "awq": AWQ(),
    "awq, gptq": AWQ(GPTQ()),
}
SCHEMES = ("4/32", "4/32+min", "4/row", "3/32")


class PeakMemory:
    """Context that looks at the memory of this process twenty times a second; `gigabytes` is the most that it saw."""

    def __enter__(self):
        self.gigabytes, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while True:
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
            self.gigabytes = max(self.gigabytes, pages * os.sysconf("SC_PAGE_SIZE") / 1e9)
            if self._ended.wait(0.05):
                return


def scheme_of(name):
    """The `WeightScheme` of a name such as "4/32+min"."""
    plain, _, minimum = name.partition("+")
    bits, _, block = plain.partition("/")
    return WeightScheme(int(bits), None if block == "row" else int(block), bool(minimum))


def inputs_of(tokens):
    return {"token_ids": tokens, "padding_mask": np.ones(tokens.shape, bool)}


def perplexity(model, tokens, batch=4):
    """exp of the mean negative log probability of each token but the first of a row."""
    total = 0.0
    for start in range(0, len(tokens), batch):
        rows = tokens[start : start + batch]
        logits = model.predict_on_batch(inputs_of(rows))[:, :-1]
        for row, line in zip(rows, logits, strict=True):
            most = line.max(axis=-1)
            sums = np.exp(line - most[:, None]).sum(axis=-1, dtype="float64")
            total += float((np.log(sums) + most - line[np.arange(len(line)), row[1:]]).sum())
    return np.exp(total / (len(tokens) * (tokens.shape[1] - 1)))


def model_of(path):
    from keras_transformer import checkpoints, load_model

    return checkpoints.from_gguf(path) if str(path).endswith(".gguf") else load_model(path)


def tiny():
    """A small model, and random tokens."""
    from keras_transformer.models import Llama, Size
    from keras_transformer.tasks import LanguageModel

    model = LanguageModel(Llama(Size(2, 64, 2, 128), 64))
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0.0, 0.1, variable.shape))
    return model, random.integers(0, 64, (4, 32)).astype("int32"), random.integers(0, 64, (4, 32)).astype("int32")


def batches_of(rows, size=4):
    return [inputs_of(rows[start : start + size]) for start in range(0, len(rows), size)]


def quantized(model, scheme, name, calibration, rows, options):
    """Quantizes a copy of the model by a method; returns it and megabytes of the integers and scales."""
    method, *scales = name.removeprefix("rotate+").split("+")
    is_rotated = name.startswith("rotate+")
    copy = copied(model, untied=is_rotated)
    if method in quantization_peers.KERAS:
        quantization_peers.by_keras(copy, scheme, method, calibration)
        return copy, None
    if is_rotated:
        rotate(copy)
    chosen = (METHODS | quantization_peers.METHODS)[method]
    quantize_weights(copy, scheme, chosen, batches_of(calibration), verbose=True)
    if scales:
        copy = train_scales(copy, model, batches_of(rows, 2), learning_rate=options.learning_rate, verbose=2)
    return copy, copy.quantized_weights.nbytes / 1e6


def of_files(model, formats, tokens):
    """The perplexity of the exported files by format, and the megabytes of each."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder, "bundle")
        report = export(model, folder, formats, quantize="learned", progress=False)
        manifest, found = read_manifest(folder), {}
        for name in formats:
            steps = get_format(name).open_steps(folder, manifest, available_cores())
            found[name] = float(np.exp(-Predictions.of(tokens, logits_of(steps, tokens)).next_log_probs.mean()))
            found[f"{name} MB"] = report[name].size / 1e6
        return found


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", metavar="FILE", help="a .gguf or .keras file of a language model")
    parser.add_argument("--text", metavar="FILE", help="a text: test and calibration")
    parser.add_argument("--tokens", metavar="FILE", help="or its token ids, an .npy file")
    parser.add_argument("--calibration", type=int, default=32, help="rows of calibration")
    parser.add_argument("--rows", type=int, default=256, help="rows of the training of scales")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of the training of scales")
    parser.add_argument("--formats", nargs="*", default=[], choices=["onnx", "tflite"], help="files to measure too")
    parser.add_argument("--reference", type=float, help="perplexity of the float model, where it is known")
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES))
    parser.add_argument("--methods", nargs="+", default=["nearest", "clipping", "gptq", "awq"])
    parser.add_argument("--libraries", metavar="DIR", help="folder of llama.cpp's libraries")
    parser.add_argument("--files", nargs="*", default=[], choices=list(quantization_peers.LlamaCpp.KINDS))
    options = parser.parse_args()
    if options.files and not options.libraries:
        parser.error("--files needs --libraries")
    if not options.tiny and (not options.model or not (options.text or options.tokens)):
        parser.error("--model and --text, or --tokens, are needed without --tiny")
    return options


def material(options):
    """The model, and rows of tokens: test, calibration and training."""
    if options.tiny:
        model, test, calibration = tiny()
        return model, test, calibration, calibration
    model = model_of(options.model)
    text = None if options.tokens else pathlib.Path(options.text).read_text()
    tokens = np.load(options.tokens) if text is None else model.tokenizer.encode(text)
    tokens = np.asarray(tokens[: len(tokens) // LENGTH * LENGTH], "int32").reshape(-1, LENGTH)
    test, others = tokens[: TEST // LENGTH], tokens[TEST // LENGTH :]
    calibration = others[:: max(len(others) // options.calibration, 1)][: options.calibration]
    return model, test, calibration, np.random.default_rng(0).permutation(others)[: options.rows]


def main():
    options = parse()
    model, test, calibration, rows = material(options)
    names = ("keras-transformer", "keras", "tensorflow", "onnxruntime", "ai-edge-quantizer")
    table = Table("Methods of quantization", versions(*names))
    table.note(
        f"{test.size} tokens of test, {calibration.size} of calibration; perplexity as a multiple of the float model's."
    )
    reference = options.reference or perplexity(model, test)
    table.add(scheme="float32", method=f"({reference:.3f})", MB=round(4e-6 * model.count_params(), 1), perplexity=1.0)
    for scheme in options.schemes:
        for method in options.methods:
            with PeakMemory() as memory:
                start = time.perf_counter()
                copy, size = quantized(model, scheme_of(scheme), method, calibration, rows, options)
                minutes = (time.perf_counter() - start) / 60
            figures = {"minutes": round(minutes, 2), "peak GB": round(memory.gigabytes, 2)}
            if size is not None and options.formats:
                files = of_files(copy, options.formats, test)
                figures |= {name: round(files[name] / reference, 4) for name in options.formats}
                figures |= {f"{name} MB": round(files[f"{name} MB"], 1) for name in options.formats}
            size = None if size is None else round(size, 1)
            found = round(perplexity(copy, test) / reference, 4)
            table.add(scheme=scheme, method=method, MB=size, perplexity=found, **figures)
    for kind in options.files:
        add_file(table, kind, model, options.libraries, lambda found: perplexity(found, test) / reference)
    table.finish(options.json)


def add_file(table, kind, model, libraries, judge):
    """The row of a file that llama.cpp writes."""
    from keras_transformer.checkpoints import from_gguf, to_gguf

    quantizer = quantization_peers.LlamaCpp(libraries)
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "float.gguf"), pathlib.Path(folder, "quantized.gguf")
        to_gguf(model, source)
        start = time.perf_counter()
        quantizer.quantize(source, target, kind)
        minutes, size = (time.perf_counter() - start) / 60, target.stat().st_size / 1e6
        found = round(judge(from_gguf(target)), 4)
    table.add(scheme=kind, method="llama.cpp", MB=round(size, 1), perplexity=found, minutes=round(minutes, 2))


def copied(model, untied):
    """A copy of a language model, with a head of its own if `untied`."""
    copy = type(model).from_config(model.get_config())
    for ours, theirs in zip(copy.variables, model.variables, strict=True):
        ours.assign(theirs)
    return untie_embeddings(copy) if untied else copy


if __name__ == "__main__":
    main()
