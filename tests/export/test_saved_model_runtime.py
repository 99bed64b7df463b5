"""A SavedModel is loaded once for all its signatures, and again once it was written anew."""

import gc

import tensorflow as tf

from keras_transformer.export.saved_model.runtime import load_saved_model


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
