"""Removal of blocks from the config of a Functional model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from keras_transformer.training.errors import PruningError
from keras_transformer.utils.types import Config


def without_blocks(record: Any, names: Collection[str]) -> Any:
    """Returns the record of a model without some layers: what they give is then what they were given first.

    Args:
        record: dict of `keras.saving.serialize_keras_object`.
        names: names of layers, whose first argument has the shape of their output.

    Raises:
        PruningError: a layer is called several times, or is in no Functional model of the record.
    """
    found: set[str] = set()
    changed = _without(record, frozenset(names), found)
    missing = set(names) - found
    if missing:
        raise PruningError(f"the block {sorted(missing)[0]!r} is in no Functional model: it cannot be removed")
    return changed


def _without(record, names, found):
    if isinstance(record, (list, tuple)):
        return type(record)(_without(each, names, found) for each in record)
    if not isinstance(record, dict):
        return record
    if isinstance(record.get("layers"), list) and "output_layers" in record:
        record = _functional(record, names, found)
    return {name: _without(each, names, found) for name, each in record.items()}


def _functional(config: Config, names, found):
    """The config of a Functional model without the layers that are in it."""
    sources = {}
    for layer in config["layers"]:
        name = layer["config"].get("name", layer.get("name"))
        if name not in names:
            continue
        nodes = layer["inbound_nodes"]
        if len(nodes) != 1:
            raise PruningError(f"the block {name!r} is called {len(nodes)} times: it cannot be removed")
        sources[name] = next(_histories(nodes[0]["args"]))
    found.update(sources)

    def source(history):
        while history[0] in sources:
            history = sources[history[0]]
        return history

    kept = [layer for layer in config["layers"] if layer["config"].get("name", layer.get("name")) not in sources]
    kept = [{**layer, "inbound_nodes": _replaced(layer["inbound_nodes"], source)} for layer in kept]
    return {**config, "layers": kept, "output_layers": _outputs(config["output_layers"], source)}


def _histories(record):
    """The histories of the symbolic tensors of a node: name of the layer, index of its call, index of the output."""
    if isinstance(record, (list, tuple)):
        for each in record:
            yield from _histories(each)
    elif isinstance(record, dict) and record.get("class_name") == "__keras_tensor__":
        yield record["config"]["keras_history"]
    elif isinstance(record, dict):
        yield from _histories(list(record.values()))


def _replaced(record, source):
    if isinstance(record, (list, tuple)):
        return type(record)(_replaced(each, source) for each in record)
    if not isinstance(record, dict):
        return record
    if record.get("class_name") == "__keras_tensor__":
        return {**record, "config": {**record["config"], "keras_history": source(record["config"]["keras_history"])}}
    return {name: _replaced(each, source) for name, each in record.items()}


def _outputs(record, source):
    if isinstance(record, (list, tuple)) and len(record) == 3 and isinstance(record[0], str):
        return source(record)
    if isinstance(record, dict):
        return {name: _outputs(each, source) for name, each in record.items()}
    return type(record)(_outputs(each, source) for each in record)
