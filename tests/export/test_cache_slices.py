"""Updates of key/value caches as slices."""

import numpy as np
import pytest
from targets.tflite_graphs import Built, cache_update

from keras_transformer.export.tflite.passes.cache_slices import write_slices

RNG = np.random.default_rng(0)


def arrays(**options):
    sizes = {"count": 1, "heads": 2, "length": 5, "width": 3, "start": None} | options
    given = {
        "cache": RNG.normal(size=(1, sizes["heads"], sizes["length"], sizes["width"])),
        "new": RNG.normal(size=(sizes["count"] * sizes["heads"], sizes["width"])),
    }
    return {name: each.astype("float32") for name, each in given.items()}


@pytest.mark.parametrize("options", [{}, {"count": 3}, {"heads": 1}, {"start": 1}, {"start": 0, "count": 5}])
def test_updates_become_slices(options):
    built, given = cache_update(**options), arrays(**options)
    slots = [None] if "start" in options else range(6 - options.get("count", 1))
    cases = [given if slot is None else {**given, "index": np.array([slot], "int32")} for slot in slots]
    expected = [built.run(**case)["next"] for case in cases]
    write_slices(built.model)
    assert "DYNAMIC_UPDATE_SLICE" in built.kinds()
    assert not {"SCATTER_ND", "MUL", "SUB", "BROADCAST_TO"} & set(built.kinds())
    for case, each in zip(cases, expected, strict=True):
        np.testing.assert_array_equal(built.run(**case)["next"], each)
    assert any((each != given["cache"]).any() for each in expected)


def test_the_first_slot_is_computed_once():
    built = cache_update()
    second = cache_update()
    write_slices(built.model)
    assert built.kinds().count("CONCATENATION") == 1
    assert second.kinds().count("SCATTER_ND") == 2


def test_graphs_of_dynamic_shapes_stay():
    built = cache_update()
    built.graph.tensors[built.tensors["cache"]].shapeSignature = np.array([-1, 2, 5, 3], "int32")
    before = built.kinds()
    write_slices(built.model)
    assert built.kinds() == before


def test_graphs_without_a_cache_stay():
    built = Built(x=("FLOAT32", (2,)))
    unread = built.add("NEG", ["x"], "FLOAT32", (2,), "Neg")
    built.finish(y=built.add("ADD", ["x", "x"], "FLOAT32", (2,), "Add"))
    assert unread
    write_slices(built.model)
    assert built.kinds() == ["NEG", "ADD"]
