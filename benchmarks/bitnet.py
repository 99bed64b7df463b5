"""Size and time per generated token of an exported BitNet decoder, against the same decoder in float32 and int8.

    python benchmarks/bitnet.py                     # 6 layers x 384, 8,192 words, prompt 16, 32 new tokens
    python benchmarks/bitnet.py --formats onnx --json bitnet.json

The weights are random; only the size and the speed of the files are measured.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from measure import Table, arguments, kept, milliseconds, ratio, ratio_note, take_turns, timed, versions, working_folder
from networks import trained_looking

from keras_transformer import models, tasks
from keras_transformer.export import export, load
from keras_transformer.feedforward import ternary_twin

SIZES = {False: (models.Size(6, 384, 6, 1536), 8192), True: (models.Size(1, 96, 2, 192), 64)}
VARIANTS = ("float32", "int8", "ternary")


def decoder(tiny):
    size, words = SIZES[tiny]
    keras.utils.set_random_seed(0)
    backbone = models.Decoder(size, words, position="rotary", norm="rms_norm", feedforward="gated", activation="silu")
    return trained_looking(tasks.LanguageModel(backbone))


def write(variant, directory, formats, tiny):
    model = decoder(tiny)
    if variant == "ternary":
        model = ternary_twin(model)
    export(model, directory, formats, quantize="int8" if variant == "int8" else None)


def measure(table, form, bundles, options):
    prompt = np.random.default_rng(0).integers(0, SIZES[options.tiny][1], 16).tolist()

    def run(bundle):
        model = load(bundle, form, num_threads=2)
        return timed(lambda: model.generate(prompt, max_new_tokens=options.new), warm_up=1)

    rivals = {variant: run(bundle) for variant, bundle in bundles.items()}
    turns = take_turns(rivals, options.rounds)
    for variant, bundle in bundles.items():
        size = sum(path.stat().st_size for path in bundle.iterdir() if path.is_file())
        table.add(
            format=form,
            weights=variant,
            MB=round(size / 1e6, 2),
            ms_a_token=round(milliseconds(turns[variant]) / options.new, 2),
            **({} if variant == "float32" else ratio(turns[variant], turns["float32"])),
        )


def main(given=None):
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--formats", nargs="+", default=["onnx", "tflite"])
    parser.add_argument("--new", type=int, default=32, help="tokens to generate")
    parser.add_argument("--directory", help="directory to keep the bundles in")
    options = parser.parse_args(given)
    table = Table(
        "BitNet in files", versions("keras_transformer", "tensorflow", "keras", "onnxruntime", "ai-edge-litert")
    )
    table.note(ratio_note(options.rounds).replace("ours", "this").replace("peer", "float32"))
    for form in options.formats:
        with working_folder(options.directory, f"bitnet_{form}") as folder:
            bundles = {
                variant: kept(folder / variant, lambda path, v=variant, f=form: write(v, path, [f], options.tiny))
                for variant in VARIANTS
            }
            measure(table, form, bundles, options)
    table.finish(options.json)


if __name__ == "__main__":
    main()
