"""What a quantized language model predicts on a text, beside its float file in the same runtime, and tokens each second.

    python benchmarks/quantized_language.py --model bundle --tokens tokens.npy
    python benchmarks/quantized_language.py --model bundle --text manual.txt
    python benchmarks/quantized_language.py --tiny    # smoke test: a tiny model and random tokens

The model is a bundle with float ONNX or TFLite files; a text needs its tokenizer. Perplexity is a multiple of the float
file's; divergence is in nats for each token.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import shutil
import tempfile
import time

import numpy as np
from measure import Table, arguments, versions

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.bundle.writing import bytes_in
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.limits import Behavior
from keras_transformer.export.formats import get_format
from keras_transformer.export.loading.load import available_cores
from keras_transformer.export.quantization.precisions import precision_of
from keras_transformer.export.verification.quantized.predictions import Predictions
from keras_transformer.export.verification.quantized.reading import logits_of

MODES = ("int8", "weight_int8", "weight_int4")
LENGTH, MOST = 512, 20_480


def tokens_of(options, folder, manifest):
    """The tokens as rows of at most `LENGTH`."""
    if options.tokens:
        tokens = np.load(options.tokens)
    else:
        text = pathlib.Path(options.text).read_text(encoding="utf-8", errors="replace")
        tokens = np.array(read_tokenizer(folder, manifest).encode(text), "int32")
    length = min(LENGTH, len(tokens))
    return tokens[: min(len(tokens), MOST) // length * length].reshape(-1, length).astype("int32")


def tokens_a_second(steps, tokens, count=32):
    """Speed of single steps after a prompt."""
    prompt = min(tokens.shape[1], 64)
    cache = steps.init_cache(1, prompt + count + 2)
    _, cache = steps.prefill(tokens[:1, :prompt], np.array([prompt], "int32"), cache)
    times = []
    for index in range(prompt, prompt + count):
        start = time.perf_counter()
        _, cache = steps.decode_step(tokens[:1, :1], cache, np.array([index], "int32"))
        times.append(time.perf_counter() - start)
    return 1 / float(np.median(times))


def measure(folder, manifest, name, tokens, table):
    """A row for the float file of one runtime, and one for each mode."""
    form = get_format(name)
    steps = form.open_steps(folder, manifest, available_cores())
    reference = Predictions.of(tokens, logits_of(steps, tokens))
    perplexity = float(np.exp(-reference.next_log_probs.mean(dtype="float64")))
    size = manifest.artifact(name).size / 1e6
    _add(table, name, f"float32 ({perplexity:.3f})", size, (1.0, 0.0, 1.0, tokens_a_second(steps, tokens)))
    for mode in MODES:
        with tempfile.TemporaryDirectory() as work:
            copy = pathlib.Path(work, "bundle")
            shutil.copytree(folder, copy)
            others = bytes_in(copy) - 1e6 * size
            files = dict(manifest.artifact(name).signatures)
            form.quantize(ExportSpec({}, quantization=precision_of(mode)), copy, files)
            small = (bytes_in(copy) - others) / 1e6
            steps = form.open_steps(copy, manifest, available_cores())
            found: Behavior = reference.compare(logits_of(steps, tokens))
            figures = (found.perplexity, found.divergence, found.top_share, tokens_a_second(steps, tokens))
            _add(table, name, mode, small, figures)


def _add(table, name, mode, size, figures):
    labels = ("perplexity", "divergence", "same token", "tokens/s")
    rounded = {label: round(value, 4) for label, value in zip(labels, figures, strict=True)}
    table.add(runtime=name, mode=mode, MB=round(size, 1), **rounded)


def tiny(folder):
    """A bundle of a small model."""
    from keras_transformer.export import ExportOptions, GenerationOptions, export
    from keras_transformer.models import Decoder, Size
    from keras_transformer.tasks import LanguageModel

    model = LanguageModel(Decoder(Size(1, 64, 2, 128), 64, max_sequence_length=128))
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.1, variable.shape))
    options = GenerationOptions(whole_graph=False, prefill_buckets=(16,))
    export(model, folder, ["onnx", "tflite"], options=ExportOptions(generation=options))


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", metavar="DIR", help="a bundle with float files")
    parser.add_argument("--text", metavar="FILE", help="a text to read")
    parser.add_argument("--tokens", metavar="FILE", help="or its token ids, an .npy file")
    options = parser.parse_args()
    table = Table("Quantized language model", versions("keras-transformer", "onnxruntime", "ai-edge-litert"))
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(options.model or work)
        if options.tiny:
            tiny(folder / "tiny")
            folder = folder / "tiny"
        elif not options.model or not (options.text or options.tokens):
            parser.error("--model and --text, or --tokens, are needed without --tiny")
        manifest = read_manifest(folder)
        random = np.random.default_rng(0).integers(0, 64, (2, 64)).astype("int32")
        tokens = random if options.tiny else tokens_of(options, folder, manifest)
        table.note(f"{tokens.size} tokens in rows of {tokens.shape[1]}; perplexity as a multiple of the float file's.")
        for name in ("onnx", "tflite"):
            if name in manifest.artifacts:
                measure(folder, manifest, name, tokens, table)
    table.finish(options.json)


if __name__ == "__main__":
    main()
