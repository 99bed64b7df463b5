import keras

from keras_transformer.backend.layer_order import layers_in_order


def stack(*parts, name):
    return keras.Sequential([keras.Input((2,)), *parts], name=name)


def test_parts_come_in_their_order_at_any_depth_and_once():
    first, second, third = (keras.layers.Dense(2, name=name) for name in ("first", "second", "third"))
    inner = stack(first, second, name="inner")
    outer = stack(inner, third, name="outer")
    whole = stack(outer, name="whole")
    dense = [layer.name for layer in layers_in_order(whole) if isinstance(layer, keras.layers.Dense)]
    assert dense == ["first", "second", "third"]
    names = [layer.name for layer in layers_in_order(whole)]
    assert names.index("outer") < names.index("inner") < names.index("first")
    assert len(names) == len(set(names))
    assert "whole" not in names
