"""The table of checkpoints in the documentation is that of the architectures."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))
import checkpoints_table

from keras_transformer.checkpoints import ARCHITECTURES


def test_every_name_stands_in_the_table_once():
    table = "\n".join(checkpoints_table.rows().values())
    assert {name: table.count(f"`{name}`") for name in ARCHITECTURES} == dict.fromkeys(ARCHITECTURES, 1) | {"siglip": 2}


def test_the_page_has_the_table_of_the_architectures():
    assert checkpoints_table.FILE.read_text() == checkpoints_table.page()
