"""What became integers in a quantized file, as a report and a manifest say it."""

import dataclasses

import pytest

from keras_transformer.export.data.checks import IncompleteError
from keras_transformer.export.data.integer_share import IntegerShare, Product

PRODUCTS = [Product("stem", 600, True), Product("head", 300, False), Product("stem", 100, False)]


def test_products_count_by_their_multiplications_and_layers_once():
    found = IntegerShare.of([*PRODUCTS, Product("head", 0, False)], 0.25, examples=200)
    assert found == IntegerShare(0.6, 0.25, ("head", "stem"), 200)
    said = "60.0% of the multiplications are of integers, 25.0% of the weights are quantized; float: head, stem"
    assert str(found) == said


def test_what_is_not_counted_is_not_said():
    assert str(IntegerShare.of(None, 0.25)) == "25.0% of the weights are quantized"
    assert IntegerShare.of([], 1.0).products is None


def test_only_some_layers_are_named_and_few_examples_are_said():
    products = [Product(f"layer_{number}", 1, number == 0) for number in range(9)]
    text = str(IntegerShare.of(products, 1.0, examples=3))
    assert "; float: layer_1, layer_2, layer_3, layer_4, layer_5 and 3 more" in text
    assert text.endswith("; the ranges of activations are of 3 examples only")


@pytest.mark.parametrize("share", [IntegerShare(None, 1.0), IntegerShare.of(PRODUCTS, 0.5, 7)])
def test_a_manifest_has_all_of_it(share):
    assert IntegerShare.from_dict(share.to_dict(), "onnx") == share


@pytest.mark.parametrize(
    "change",
    [{"products": "all"}, {"weights": None}, {"float_layers": "head"}, {"float_layers": [1]}, {"examples": -1}],
)
def test_a_wrong_record_is_refused(change):
    record = {**dataclasses.asdict(IntegerShare(0.5, 0.5, (), 3)), "float_layers": [], **change}
    with pytest.raises(IncompleteError, match="onnx: integers"):
        IntegerShare.from_dict(record, "onnx")
