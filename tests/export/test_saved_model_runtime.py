"""A SavedModel is loaded once for all its signatures, and again once it was written anew."""

import gc
import os
import pathlib
import signal

import numpy as np
import tensorflow as tf

from keras_transformer.export import ExportError
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.saved_model.runtime import SavedModelRuntime, load_saved_model


def save(path, value):
    module = tf.Module()
    module.value = tf.Variable(value)
    module.give = tf.function(lambda: {"y": module.value + 1.0}, input_signature=[])
    tf.saved_model.save(module, path, signatures={"give": module.give})


def test_it_is_shared_while_it_is_in_use(tmp_path):
    save(str(tmp_path), 2.0)
    first = load_saved_model(str(tmp_path), 1)
    assert load_saved_model(str(tmp_path), 1) is first
    save(str(tmp_path), 5.0)
    second = load_saved_model(str(tmp_path), 1)
    assert [each.signatures["give"]()["y"].numpy() for each in (first, second)] == [3.0, 6.0]


def test_it_is_not_kept(tmp_path):
    from keras_transformer.export.saved_model import runtime

    save(str(tmp_path), 2.0)
    first = load_saved_model(str(tmp_path), 1)
    assert any(each is first for each in runtime._LOADED.values())
    del first
    gc.collect()
    assert not any(key[0] == str(tmp_path) for key in runtime._LOADED)


def test_a_forked_process_does_not_hang(tmp_path):
    """The threads of TensorFlow are not in it: each use would wait for them."""
    save(str(tmp_path / "model"), 2.0)
    manifest = Manifest({}, {"saved_model": ArtifactRecord({"give": "model"}, size=0)}, tolerance=1e-5)
    runtime = SavedModelRuntime(pathlib.Path(tmp_path), manifest, "give", 1)
    np.testing.assert_array_equal(runtime({})["y"], 3.0)
    child = os.fork()
    if not child:
        signal.alarm(20)
        refused = 0
        for use in (lambda: runtime({}), lambda: load_saved_model(str(tmp_path / "model"), 1)):
            try:
                use()
            except ExportError as error:
                refused += "was loaded before this process was forked" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
