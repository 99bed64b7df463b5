"""Files for MediaPipe Tasks: the tasks answer as Keras does."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.export import ExportError, InvalidModelError, write_mediapipe
from keras_transformer.export.commands.main import main as cli
from keras_transformer.export.engines.mediapipe.metadata import mediapipe_schema
from keras_transformer.export.engines.mediapipe.model_file import mediapipe_vocabulary
from keras_transformer.export.tflite.passes.interface import read_metadata
from keras_transformer.export.tflite.tree import read_file
from keras_transformer.text import Bytes, WordPiece

HAS_ENGINE = importlib.util.find_spec("mediapipe") is not None
NEEDS_ENGINE = pytest.mark.skipif(not HAS_ENGINE, reason="MediaPipe is not installed")
TASKS = ["image_classifier", "image_embedder", "text_classifier", "text_embedder"]
WORKER = Path(__file__).with_name("mediapipe_worker.py")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files, written in a process of their own."""
    out = tmp_path_factory.mktemp("mediapipe")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    run = subprocess.run([sys.executable, WORKER, out], capture_output=True, text=True, env=environment)
    assert (out / "answers.npz").exists(), run.stderr[-3000:]
    return out


@NEEDS_ENGINE
@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_the_task_answers_as_keras(written, name):
    import mediapipe_worker as worker

    from keras_transformer.export.engines.mediapipe.check import ask
    from keras_transformer.export.engines.mediapipe.tasks import TASKS as KINDS

    kind = KINDS[name]
    examples = list(worker.images()) if kind.is_image else worker.TEXTS
    expected = np.load(written / "answers.npz")[name]
    found = np.stack(ask(written / f"{name}.tflite", name, kind, examples))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    assert np.ptp(expected, axis=0).max() > 0.01  # The examples differ.


@NEEDS_ENGINE
@pytest.mark.slow
def test_the_detector_answers_as_keras(written):
    import mediapipe_worker as worker
    from mediapipe import Image, ImageFormat
    from mediapipe.tasks.python import BaseOptions, vision

    path, expected = written / "object_detector.tflite", np.load(written / "answers.npz")["object_detector"]
    options = vision.ObjectDetectorOptions(BaseOptions(model_asset_path=str(path)))
    with vision.ObjectDetector.create_from_options(options) as detector:
        results = [detector.detect(Image(image_format=ImageFormat.SRGB, data=each)) for each in worker.images()]
    for result, rows in zip(results, expected, strict=True):
        # MediaPipe joins detections whose boxes are equal in whole pixels.
        pairs = [(each.bounding_box, found) for each in result.detections for found in each.categories]
        pairs.sort(key=lambda pair: -pair[1].score)
        np.testing.assert_allclose([found.score for _, found in pairs], rows[:, 5], atol=1e-5)
        assert [found.category_name for _, found in pairs] == [worker.CLASSES[int(row[4])] for row in rows]
        boxes = np.array([[box.origin_x, box.origin_y, box.width, box.height] for box, _ in pairs])
        corners = np.clip(rows[:, :4], 0, [worker.IMAGE[1], worker.IMAGE[0]] * 2)
        np.testing.assert_allclose(boxes[:, :2], corners[:, :2], atol=1)
        np.testing.assert_allclose(boxes[:, 2:], corners[:, 2:] - corners[:, :2], atol=1)
    assert np.ptp(expected[..., :4], axis=(0, 1)).max() > 2


@NEEDS_ENGINE
def test_other_outputs_are_no_detections(tmp_path):
    import keras

    inputs = keras.Input((8, 8, 3), name="images")
    with pytest.raises(InvalidModelError, match="takes 'logits' and 'boxes'"):
        write_mediapipe(keras.Model(inputs, keras.layers.Flatten()(inputs)), tmp_path / "m.tflite", "object_detector")


@NEEDS_ENGINE
@pytest.mark.slow
def test_labels_vocabulary_and_metadata_are_in_the_file(written):
    import mediapipe_worker as worker
    from mediapipe.tasks.python import BaseOptions, text

    path = written / "text_classifier.tflite"
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt").decode().split("\n") == worker.CLASSES
        assert archive.read("vocab.txt").decode().split("\n") == worker.WORDS
    options = text.TextClassifierOptions(BaseOptions(model_asset_path=str(path)), max_results=2)
    with text.TextClassifier.create_from_options(options) as classifier:
        best = classifier.classify("cats?").classifications[0].categories
    scores = np.load(written / "answers.npz")["text_classifier"][1]
    order = np.argsort(-scores)[:2]
    assert [each.category_name for each in best] == [worker.CLASSES[index] for index in order]
    entry = read_metadata(read_file(path))["TFLITE_METADATA"]
    described = mediapipe_schema().ModelMetadata.GetRootAs(entry, 0)
    assert described.Description().decode() == "Texts about cats"
    assert described.SubgraphMetadata(0).InputTensorMetadataLength() == 3
    assert (written / "again.tflite").read_bytes() == path.read_bytes()


@NEEDS_ENGINE
def test_what_does_not_fit_is_refused(tmp_path):
    import keras

    inputs = keras.Input((8, 8, 3), name="images")
    model = keras.Model(inputs, keras.layers.Dense(2, name="probabilities")(keras.layers.Flatten()(inputs)))
    path = tmp_path / "model.tflite"
    with pytest.raises(ExportError, match="task must be one of image_classifier"):
        write_mediapipe(model, path, "detector")
    with pytest.raises(InvalidModelError, match="MediaPipe passes token_ids"):
        write_mediapipe(model, path, "text_classifier")
    with pytest.raises(ExportError, match="has 3 names; .* has 2 classes"):
        write_mediapipe(model, path, "image_classifier", metadata={"class_names": ["a", "b", "c"]})
    with pytest.raises(ExportError, match="names of one line"):
        write_mediapipe(model, path, "image_classifier", metadata={"class_names": ["a\nb", "c"]})
    with pytest.raises(ExportError, match="max_length is for text"):
        write_mediapipe(model, path, "image_classifier", max_length=7)
    with pytest.raises(ExportError, match="must end in .tflite"):
        write_mediapipe(model, tmp_path / "model.task", "image_classifier")
    gray = keras.Input((8, 8, 1), name="images")
    with pytest.raises(InvalidModelError, match="one image"):
        write_mediapipe(keras.Model(gray, keras.layers.Flatten()(gray)), path, "image_embedder")
    with pytest.raises(InvalidModelError, match="one vector for each row"):
        write_mediapipe(keras.Model(inputs, inputs * 2), path, "image_embedder")
    assert not path.exists()


def test_the_tokenizers_that_it_reads():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "b", "a"]
    assert mediapipe_vocabulary(WordPiece(words)) == words
    with pytest.raises(InvalidModelError, match="keeps case"):
        mediapipe_vocabulary(WordPiece(words, lowercase=False))
    with pytest.raises(InvalidModelError, match=r"lacks \[SEP\]"):
        mediapipe_vocabulary(WordPiece([word for word in words if word != "[SEP]"]))
    with pytest.raises(InvalidModelError, match="not bytes"):
        mediapipe_vocabulary(Bytes())
    with pytest.raises(InvalidModelError, match="needs a tokenizer"):
        mediapipe_vocabulary(None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--for", "mediapipe"], "needs --task"),
        (["--for", "mediapipe", "--task", "fill-mask"], "needs --task: image_classifier"),
        (["--for", "transformers_js", "--task", "text_embedder"], "needs --task: feature-extraction"),
        (["--for", "transformers_js", "--task", "fill-mask", "--max-length", "3"], "takes no --max-length"),
        (["--for", "genai", "--node-modules", "x"], "--node-modules is for"),
        (["--for", "genai", "--task", "text_embedder"], "are for mediapipe"),
        (["--for", "mediapipe", "--task", "text_embedder", "--no-tokenizer"], "--no-tokenizer is for genai"),
    ],
)
def test_the_command_names_what_is_wrong(capsys, words, message):
    assert cli(["engine", "model.keras", "--out", "x", *words]) == 1
    assert message in capsys.readouterr().err
