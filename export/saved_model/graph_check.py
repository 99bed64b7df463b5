"""Check of a SavedModel before TensorFlow loads it: a graph is a program, and loading runs parts of it.

Only operations of an allow-list may occur (see `operations`). TensorFlow adds two functions to every SavedModel that
write and read its variables. They are for servers: nothing that is loaded here may call them, and the path that they
read is their argument.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.export.operations.computing import COMPUTING, MAIN_GRAPH, SAVING
from keras_transformer.utils.captured_stderr import captured

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

FILE = "saved_model.pb"
_KINDS = {"user_object", "function", "bare_concrete_function", "variable", "constant", "resource", "captured_tensor"}
_IDENTIFIERS = {"_generic_user_object", "signature_map", "trackable_list_wrapper", "trackable_dict_wrapper"}
_IDENTIFIERS |= {"trackable_tuple_wrapper"}
_CLASSES = {"", "tf.TrackableConstant", "tf.StaticHashTable"}
# DT_RESOURCE and DT_VARIANT: objects in the memory of a process, which a file cannot contain.
_OBJECTS = {20, 21}
_CHECKED = {"s", "list", "tensor", "func"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def check_saved_model(path: pathlib.Path) -> None:
    """Checks that loading a SavedModel and calling it computes, and does nothing else.

    Args:
        path: path of the folder.

    Raises:
        InvalidBundleError: the file is damaged; or it has an operation, an object or a call that is not allowed, which the
            message names.
    """
    meta = _meta_graph(path)
    if meta.asset_file_def:
        raise _refused(
            f"asset '{_shown(meta.asset_file_def[0].filename)}'", "only operations that read files use assets"
        )
    library = meta.graph_def.library
    saving = {each.signature.name for each in library.function if not SAVING.isdisjoint(_operations(each.node_def))}
    names = {each.signature.name for each in library.function}
    # TensorFlow orders them by hash: of several faults, the same one is named each time.
    for function in sorted(library.function, key=lambda each: each.signature.name):
        _check_function(function, names, saving)
    _check_main_graph(meta, names, saving)
    gradients = {each.gradient_func for each in (*library.gradient, *library.registered_gradients)}
    gradients |= {each.function_name for each in library.gradient}
    loaded = gradients | set(meta.object_graph_def.concrete_functions)
    if loaded - (names - saving):
        raise _refused(f"function '{_shown(min(loaded - (names - saving)))}'", "a model does not load it")
    for number, node in enumerate(meta.object_graph_def.nodes):
        _check_object(number, node)


def _meta_graph(path: pathlib.Path) -> Any:
    with captured():
        from google.protobuf.message import DecodeError
        from tensorflow.core.protobuf import saved_model_pb2

        try:
            message = saved_model_pb2.SavedModel.FromString((path / FILE).read_bytes())
        except OSError as error:
            raise InvalidBundleError(f"'{FILE}' cannot be read: {error.strerror}") from error
        except DecodeError as error:
            raise InvalidBundleError(f"'{FILE}' is damaged") from error
    # Otherwise TensorFlow runs the initialization of the main graph.
    if len(message.meta_graphs) != 1 or not message.meta_graphs[0].HasField("object_graph_def"):
        raise InvalidBundleError(f"'{FILE}' is not one graph with its objects, as TensorFlow 2 writes it")
    return message.meta_graphs[0]


def _operations(nodes: Iterable[NodeDef]) -> set[str]:
    return {node.op for node in nodes}


def _check_function(function: FunctionDef, names: set[str], saving: set[str]) -> None:
    name = function.signature.name
    where = f"function '{_shown(name)}'"
    allowed = COMPUTING | SAVING if name in saving else COMPUTING
    for node in function.node_def:
        _check_node(node, allowed, names, saving, where)
    if any(called in saving for value in function.attr.values() for called in _texts(value)):
        raise _refused(where, "it names a function that saves or restores variables")
    if name not in saving:
        return
    arguments = [each.name for each in function.signature.input_arg]
    for node in function.node_def:
        if node.op == "RestoreV2" and list(node.input[:1]) != arguments[:1]:
            raise _refused(where, "it reads another file than the variables")


def _check_node(node: NodeDef, allowed: frozenset[str], names: set[str], forbidden: set[str], where: str) -> None:
    """Checks one node: its operation, its constants and the functions that it calls."""
    where = f"node '{_shown(node.name)}' of {where}"
    if node.op not in allowed and not _is_call_by_name(node, names - forbidden):
        raise _refused(f"operation {_shown(node.op)}, in {where}", "it is not among those that a model may use")
    for value in node.attr.values():
        if value.WhichOneof("value") not in _CHECKED:
            continue
        if value.tensor.dtype in _OBJECTS or any(each.dtype in _OBJECTS for each in value.list.tensor):
            raise _refused(where, "it has an object of a process as a constant")
        for called in (value.func.name, *(each.name for each in value.list.func)):
            if called and called not in names:
                raise _refused(where, f"it calls '{_shown(called)}', which is missing")
        if any(text in forbidden for text in _texts(value)):
            raise _refused(where, "it calls a function that saves or restores variables")


def _is_call_by_name(node: NodeDef, names: set[str]) -> bool:
    """Whether the operation is a function of the graph, which is checked as all are, and none of TensorFlow."""
    from tensorflow.python.framework import op_def_registry

    return node.op in names and op_def_registry.get(node.op) is None


def _texts(value: AttrValue) -> Iterator[str]:
    """Every text in an attribute: some passes over graphs find functions by names in texts."""
    for called in (value.func, *value.list.func):
        yield called.name
        for each in called.attr.values():
            yield from _texts(each)
    for text in (value.s, *value.list.s):
        yield text.decode("utf-8", "replace")


def _check_main_graph(meta: MetaGraphDef, names: set[str], saving: set[str]) -> None:
    """Checks the graph that servers run: variables are read from where the server says."""
    where, saver, nodes = "the main graph", meta.saver_def, meta.graph_def.node
    path = saver.filename_tensor_name.split(":")[0]
    own = {saver.save_tensor_name.split(":")[0], saver.restore_op_name}
    is_given = all(node.op == "Placeholder" for node in nodes if node.name == path)
    for node in nodes:
        is_own = node.name in own and node.op in _CALLS and list(node.input[:1]) == [path] and is_given
        _check_node(node, MAIN_GRAPH, names, set() if is_own else saving, where)


def _check_object(number: int, node: Any) -> None:
    kind = node.WhichOneof("kind")
    where = f"object {number}"
    if kind not in _KINDS or (kind == "user_object" and node.user_object.identifier not in _IDENTIFIERS):
        raise _refused(
            f"{where} ({_shown(node.user_object.identifier or kind)})", "no model needs objects of this kind"
        )
    if node.registered_name not in _CLASSES or node.registered_saver or node.saveable_objects:
        raise _refused(where, "it brings its own way to be loaded")
    if kind == "variable" and node.variable.dtype in _OBJECTS:
        raise _refused(where, "a variable is an object of a process")


def _refused(what: str, reason: str) -> InvalidBundleError:
    return InvalidBundleError(f"the SavedModel is not loaded, because of {what}: {reason}")


def _shown(text: object, limit: int = 80) -> str:
    """A name in the file as one short printable line."""
    return ascii(str(text))[1:-1][:limit]
