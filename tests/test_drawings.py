"""What code draws and writes into the documentation: the picture of the packages, and the page of benchmarks."""

import json
from pathlib import Path

import pytest

import house
import proof
from markup import benchmarks_page

DOCS = Path(__file__).parents[1] / "docs"
FLOORS = {"ground": ("a",), "first": ("b",), "second": ("c",)}


def test_a_package_that_no_floor_names_stands_above_what_it_imports():
    arrows = {"a": set(), "b": {"a"}, "c": {"b"}, "new": {"b", "a", "numpy"}}
    assert house.placed(arrows, FLOORS) == {"a": 0, "b": 1, "c": 2, "new": 1}


def test_an_import_that_leads_up_is_an_error():
    with pytest.raises(ValueError, match="a imports c, which stands above it"):
        house.placed({"a": {"c"}, "b": set(), "c": set()}, FLOORS)


def test_picture_shows_every_package_of_today(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "FILE", tmp_path / "house.svg")
    house.main()
    drawn = (tmp_path / "house.svg").read_text()
    assert all(f">{name}</text>" in drawn for name in house.packages())
    assert drawn == (DOCS / "house.svg").read_text(), "python docs/drawings/house.py"


def test_picture_of_the_proof_is_that_of_its_code(tmp_path, monkeypatch):
    monkeypatch.setattr(proof, "FILE", tmp_path / "proof.svg")
    proof.main()
    assert (tmp_path / "proof.svg").read_text() == (DOCS / "proof.svg").read_text(), "python docs/drawings/proof.py"


def test_page_has_a_section_for_each_table(tmp_path):
    found = {
        "title": "Speed",
        "versions": {"keras": "3"},
        "rows": [{"n": 1, "ms": 2.5}, {"n": 2, "of": "a|b"}],
        "notes": ["Once."],
    }
    (tmp_path / "speed.json").write_text(json.dumps(found))
    (tmp_path / "other.json").write_text("{}")
    page = benchmarks_page.page(tmp_path)
    assert (
        "## Speed\n\nkeras 3\n\n- Once.\n\n| n | ms | of |\n| --- | --- | --- |\n| 1 | 2.5 |  |\n| 2 |  | a\\|b |"
        in page
    )
    assert page.count("\n## ") == 2


def test_parity_is_summarized_by_kind():
    forms = {"causal": {"saved_model": 0.0, "tflite": 3e-7, "onnx": 1e-7}}
    found = {
        "versions": {},
        "parity": {"mechanism-a": forms, "mechanism-b": {"causal": {"tflite": 1e-7}}, "position-c": forms},
    }
    rows = [
        line for line in benchmarks_page.parity(found).splitlines() if line.startswith(("| mechanism", "| position"))
    ]
    assert rows[0] == "| mechanism | 4 | 0.0e+00 (0.0e+00) | 3.0e-07 (2.0e-07) | 1.0e-07 (1.0e-07) |"
    assert rows[1].startswith("| position | 3 |")


def test_rows_of_few_kinds_are_tables_of_their_own():
    rows = [{"task": task, "name": name, "steps": 4} for task in ("copy", "sort") for name in "abcd"]
    page = benchmarks_page.section({"title": "Tasks", "versions": {}, "rows": rows, "notes": []})
    assert "### task: copy\n\nFor all: steps 4.\n\n| name |\n| --- |\n| a |" in page
    assert page.count("| d |") == 2
    assert "task" in rows[0]  # The rows themselves keep their columns.
