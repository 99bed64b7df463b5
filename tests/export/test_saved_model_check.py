"""A SavedModel that reads or writes files, or runs other code, is refused before TensorFlow loads it."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.export import InvalidBundleError, export, load
from keras_transformer.export.saved_model.graph_check import check_saved_model
from keras_transformer.export.saved_model.runtime import load_saved_model


def save(path, function, *resources, arguments=()):
    module = tf.Module()
    module.variable = tf.Variable([1.0, 2.0])
    module.resources = list(resources)
    module.give = tf.function(lambda *given: {"y": function(module, *given)}, input_signature=arguments)
    tf.saved_model.save(module, str(path), signatures={"give": module.give})
    return str(path)


def changed(path, change):
    """Changes the message of a SavedModel."""
    file = f"{path}/saved_model.pb"
    with open(file, "rb") as opened:
        message = saved_model_pb2.SavedModel.FromString(opened.read())
    change(message.meta_graphs[0])
    with open(file, "wb") as opened:
        opened.write(message.SerializeToString())
    return str(path)


def write_at_load(target):
    """A resource whose initializer, which runs while a model is loaded, writes a file."""
    from tensorflow.python.trackable.resource import TrackableResource

    class Writing(TrackableResource):
        def _create_resource(self):
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.int64)

        def _initialize(self):
            tf.io.write_file(str(target), "written")
            return tf.no_op()

    writing = Writing()
    _ = writing.resource_handle
    return writing


def call_by_name(name):
    """Lets the function of a signature call another one as an operation of that name."""

    def change(meta):
        functions = {each.signature.name: each for each in meta.graph_def.library.function}
        (called,) = (each for key, each in functions.items() if "tripled" in key)
        called.signature.name = name
        for function in functions.values():
            for node in function.node_def:
                if "tripled" in node.attr["f"].func.name:
                    node.attr.clear()
                    node.op = name

    return change


def of_a_call(path):
    tripled = tf.function(lambda x: 3.0 * x, input_signature=[tf.TensorSpec([2])])
    tripled._name = "tripled"
    return save(path, lambda module, x: tripled(x), arguments=[tf.TensorSpec([2])])


def test_a_function_may_be_called_as_an_operation_of_its_name(tmp_path):
    path = changed(of_a_call(tmp_path / "model"), call_by_name("a_function"))
    check_saved_model(pathlib.Path(path))


def test_a_model_may_call_functions_by_their_names(tmp_path):
    labels, logits = keras.Input((3,), dtype="int32", name="labels"), keras.Input((7, 5), name="logits")
    sizes = [keras.ops.full_like(labels[:, 0], size) for size in (3, 7)]
    model = keras.Model([labels, logits], keras.ops.ctc_loss(labels, logits, *sizes, mask_index=4))
    export(model, tmp_path / "bundle", ["saved_model"], progress=False)
    given = [
        np.array([[0, 1, 2], [3, 3, 1]], "int32"),
        np.random.default_rng(0).normal(size=(2, 7, 5)).astype("float32"),
    ]
    found = load(tmp_path / "bundle", backend="saved_model")(given)["output"]
    np.testing.assert_allclose(found, model(given), rtol=1e-5)


def test_a_function_has_no_name_of_an_operation_that_is_not_allowed(tmp_path):
    path = changed(of_a_call(tmp_path / "model"), call_by_name("ReadFile"))
    with pytest.raises(InvalidBundleError, match="because of operation ReadFile"):
        check_saved_model(pathlib.Path(path))


def test_a_file_is_not_written_while_a_model_is_loaded(tmp_path):
    target = tmp_path / "target"
    resource = write_at_load(target)
    path = save(tmp_path / "model", lambda module: module.variable + 0.0, resource)
    tf.saved_model.load(path)
    assert target.read_text() == "written", "TensorFlow itself writes it"
    target.unlink()
    with pytest.raises(InvalidBundleError, match="because of operation WriteFile, in node"):
        load_saved_model(path, 1)
    assert not target.exists()


STRING = (tf.TensorSpec((), tf.string),)
TABLE = tf.TensorSpec((None,), tf.string)


def from_file(path):
    path.write_text("a\nb\n")
    initializer = tf.lookup.TextFileInitializer(
        str(path), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    return tf.lookup.StaticHashTable(initializer, -1)


HOSTILE = {
    "ReadFile": lambda module, name: tf.io.read_file(name),
    "MatchingFiles": lambda module, name: tf.io.matching_files(name),
    "EagerPyFunc": lambda module, name: tf.py_function(lambda x: x, [name], tf.string),
    "PyFunc": lambda module, name: tf.numpy_function(lambda x: x, [name], tf.string),
    "ImmutableConst": lambda module, name: tf.raw_ops.ImmutableConst(
        dtype=tf.uint8, shape=(16,), memory_region_name="/etc/passwd"
    ),
    "RestoreV2": lambda module, name: tf.raw_ops.RestoreV2(
        prefix=name, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.float32]
    )[0],
    "TensorSliceDataset": lambda module, name: tf.data.TextLineDataset(name).reduce("", lambda a, b: a + b),
}


def printed(module, name):
    tf.print(name, output_stream="file:///tmp/keras_transformer_never")
    return name


@pytest.mark.parametrize("operation", [*HOSTILE, "PrintV2"])
def test_operations_that_leave_memory_are_refused(tmp_path, operation):
    path = save(tmp_path, {**HOSTILE, "PrintV2": printed}[operation], arguments=STRING)
    # A function with `RestoreV2` counts as one that restores variables, which no signature may be.
    pattern = "a model does not load it|saves or restores" if operation == "RestoreV2" else f"operation {operation}, in"
    with pytest.raises(InvalidBundleError, match=pattern):
        load_saved_model(path, 1)


def test_tables_are_read_from_the_graph_alone(tmp_path):
    inline = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([5, 6], "int64")), -1
    )
    path = save(tmp_path / "inline", lambda module, x: module.resources[0].lookup(x), inline, arguments=(TABLE,))
    found = load_saved_model(path, 1).signatures["give"](tf.constant(["b", "c"]))["y"]
    assert found.numpy().tolist() == [6, -1]
    table = from_file(tmp_path / "words")
    path = save(tmp_path / "file", lambda module, x: module.resources[0].lookup(x), table, arguments=(TABLE,))
    with pytest.raises(InvalidBundleError, match=r"because of asset 'words'"):
        load_saved_model(path, 1)
    changed(path, lambda meta: meta.ClearField("asset_file_def"))
    with pytest.raises(InvalidBundleError, match="operation InitializeTableFromTextFileV2"):
        load_saved_model(path, 1)


def plain(path):
    return save(path, lambda module, x: module.variable * x, arguments=(tf.TensorSpec((), tf.float32),))


def restoring(meta):
    return next(each for each in meta.graph_def.library.function if "traced_restore" in each.signature.name)


def call_the_saver(meta):
    """The signature calls the function that restores variables, with a path of its own."""
    function = next(each for each in meta.graph_def.library.function if "traced" not in each.signature.name)
    node = function.node_def.add(name="steal", op="StatefulPartitionedCall")
    node.attr["f"].func.name = restoring(meta).signature.name


def call_by_text(meta):
    function = next(each for each in meta.graph_def.library.function if "traced" not in each.signature.name)
    function.attr["api_implements"].s = restoring(meta).signature.name.encode()


def load_the_saver(meta):
    name = restoring(meta).signature.name
    meta.object_graph_def.nodes.add().bare_concrete_function.concrete_function_name = name
    meta.object_graph_def.concrete_functions[name].SetInParent()


def read_another_file(meta):
    function = restoring(meta)
    node = function.node_def.add(name="path", op="Const")
    node.attr["dtype"].type = 7
    node.attr["value"].tensor.string_val.append(b"/etc/passwd")
    next(each for each in function.node_def if each.op == "RestoreV2").input[0] = "path:output:0"


def give_servers_another_file(meta):
    node = next(each for each in meta.graph_def.node if each.name == "saver_filename")
    node.op = "Const"


def call_what_is_missing(meta):
    node = next(each for each in meta.graph_def.node if each.op == "StatefulPartitionedCall")
    node.attr["f"].func.name = "__inference_of_another_model"


def call_by_operation(meta):
    meta.graph_def.node.add(name="call", op=restoring(meta).signature.name)


def forge_a_handle(meta):
    node = meta.graph_def.node.add(name="handle", op="Const")
    node.attr["value"].tensor.dtype = 20


def use_a_gradient(meta):
    meta.graph_def.library.registered_gradients.add(
        gradient_func=restoring(meta).signature.name, registered_op_type="AddV2"
    )


def bring_an_asset(meta):
    meta.object_graph_def.nodes.add().asset.asset_file_def_index = 0


def bring_an_optimizer(meta):
    meta.object_graph_def.nodes.add().user_object.identifier = "optimizer"


def bring_a_loader(meta):
    meta.object_graph_def.nodes[0].registered_name = "Custom.Layer"


def restore_by_a_function(meta):
    meta.object_graph_def.nodes[0].saveable_objects["x"].restore_function = 1


def be_of_version_1(meta):
    meta.ClearField("object_graph_def")


CHANGES = {
    call_the_saver: "'steal' of function .* calls a function that saves or restores variables",
    call_by_text: "names a function that saves or restores",
    load_the_saver: "'__inference__traced_restore_.*': a model does not load it",
    read_another_file: "reads another file than the variables",
    give_servers_another_file: "the main graph: it calls a function that saves or restores",
    call_what_is_missing: "calls '__inference_of_another_model', which is missing",
    call_by_operation: "because of operation __inference__traced_restore",
    forge_a_handle: "'handle' of the main graph: it has an object of a process",
    use_a_gradient: "a model does not load it",
    bring_an_asset: r"object \d+ \(asset\)",
    bring_an_optimizer: r"object \d+ \(optimizer\)",
    bring_a_loader: "object 0: it brings its own way",
    restore_by_a_function: "object 0: it brings its own way",
    be_of_version_1: "is not one graph with its objects",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return plain(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_other_ways_out_are_refused(model, tmp_path, change):
    check_saved_model(pathlib.Path(model))
    with open(f"{model}/saved_model.pb", "rb") as file:
        (tmp_path / "saved_model.pb").write_bytes(file.read())
    with pytest.raises(InvalidBundleError, match=CHANGES[change]):
        check_saved_model(pathlib.Path(changed(tmp_path, change)))


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"text"])
def test_damaged_files_are_refused(tmp_path, content):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(InvalidBundleError, match=r"'saved_model\.pb' is (damaged|not one graph)"):
        load_saved_model(str(tmp_path), 1)


def test_loops_and_random_numbers_are_accepted(tmp_path):
    def function(module, x):
        total = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y + tf.random.stateless_uniform((2,), (1, i))), (0, x)
        )
        items = tf.TensorArray("float32", 2).unstack(total[1])
        return tf.cond(tf.reduce_sum(x) > 0, items.stack, lambda: x)

    path = save(tmp_path, function, arguments=(tf.TensorSpec((2,), tf.float32),))
    loaded = load_saved_model(path, 1).signatures["give"](tf.ones(2))["y"]
    assert (loaded.numpy() >= 1.0).all()
