"""What a folder of a checkpoint has beside its weights: names of classes, and a tokenizer or none."""

import json
import pathlib
import shutil

import keras
import pytest

from keras_transformer import checkpoints
from keras_transformer.export.commands.model_files import load_model
from keras_transformer.export.spec.class_names import known_metadata

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "albert-SequenceClassification"


@pytest.mark.parametrize(
    ("labels", "known"),
    [
        ({"1": "payment", "0": "delivery", "2": "app"}, {"class_names": ["delivery", "payment", "app"]}),
        ({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, {}),
        ({"0": "a", "2": "b", "3": "c"}, {}),
    ],
)
def test_names_of_a_config_describe_the_bundle(tmp_path, labels, known):
    folder = pathlib.Path(shutil.copytree(FOLDER, tmp_path / "folder"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"id2label": labels}))
    model = checkpoints.from_huggingface(folder, verbose=0)
    assert known_metadata(model) == known
    assert known_metadata(keras.Model(model.inputs, [model.output, model.output])) == {}


def test_a_folder_without_a_tokenizer_is_said_to_have_none(capsys):
    model = load_model(FOLDER)
    assert model.output_shape == (None, 3)
    assert f"'{FOLDER}' has no tokenizer that can be read" in capsys.readouterr().err
