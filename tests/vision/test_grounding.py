"""Places as text, as transformers' `Kosmos2Processor` reads and writes them."""

import pytest

from keras_transformer.vision import read_grounding, write_boxes

# The example of transformers' documentation.
SNOWMAN = (
    "<image></image><grounding> An image of<phrase> a snowman</phrase><object><patch_index_0044><patch_index_0863></object>"
    " warming himself by<phrase> a fire</phrase><object><patch_index_0005><patch_index_0911></object>."
)


def test_the_documented_example():
    caption, entities = read_grounding(SNOWMAN)
    assert caption == "An image of a snowman warming himself by a fire."
    assert entities == [
        ("a snowman", 12, 21, [(0.390625, 0.046875, 0.984375, 0.828125)]),
        ("a fire", 41, 47, [(0.171875, 0.015625, 0.484375, 0.890625)]),
    ]


def test_several_places_of_one_thing_and_a_place_without_a_name():
    text = "<phrase>dogs</phrase><object><patch_index_0000><patch_index_0005></delimiter_of_multi_objects/>"
    text += (
        "<patch_index_0003><patch_index_0003></object> and<object><patch_index_0004><patch_index_0008></object> there"
    )
    caption, entities = read_grounding(text, side=4)
    assert caption == "dogs and there"
    assert entities[0] == ("dogs", 0, 4, [(0.125, 0.125, 0.375, 0.375), (0.75, 0.0, 1.0, 0.25)])
    assert entities[1] == ("", 8, 8, [(0.0, 0.25, 0.25, 0.75)])


def test_a_phrase_that_points_at_nothing_is_text():
    assert read_grounding("<phrase>a dog</phrase> <object></object>runs") == ("a dog runs", [])


def test_places_are_written_as_they_are_read():
    assert write_boxes([(0.0, 0.0, 0.5, 0.5), (0.75, 0.0, 1.0, 0.25)], side=4) == (
        "<object><patch_index_0000><patch_index_0005></delimiter_of_multi_objects/>"
        "<patch_index_0003><patch_index_0003></object>"
    )
    for box in ((0.5, 0.0, 0.5, 1.0), (0.0, 0.0, 1.1, 1.0)):
        with pytest.raises(ValueError, match="from 0 to 1"):
            write_boxes(box)
