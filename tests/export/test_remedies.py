"""Each remedy that an error of the export names, as typed: what was refused goes through, and is proven."""

import importlib
import inspect
import json
import pathlib
import re
import subprocess
import sys

import keras
import pytest
from variants import exhaustive_but

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
if keras.backend.backend() == "tensorflow":
    from remedy_cases import CASES, TABLE

    from keras_transformer.export import errors
    from keras_transformer.export.remedies import Remedy
else:
    CASES = {}

ROOT = pathlib.Path(__file__).parents[2]
WORKER = pathlib.Path(__file__).with_name("remedy_cases.py")
# What people meet most often.
OFTEN = {"INPUTS", "FUNCTIONAL", "DENSE", "FIXED", "CONFIG", "IMPORT", "LAMBDA", "OPERATION", "STRINGS", "CALIBRATION"}


@pytest.fixture(scope="module")
def results(tmp_path_factory, selected):
    out, names = tmp_path_factory.mktemp("remedies"), sorted(selected("results", "name"))
    done = subprocess.run([sys.executable, str(WORKER), str(out), *names], check=False, capture_output=True, text=True)
    return json.loads((out / "results.json").read_text()) | {"log": done.stderr[-3000:]}


@pytest.mark.slow
@pytest.mark.parametrize("name", exhaustive_but(CASES, *(CASES.keys() & OFTEN)))
def test_what_was_refused_goes_through(results, name):
    assert name in results, results["log"]
    assert results[name] is None, results[name]["crash"]


def test_each_remedy_has_a_case():
    missing = {each.name for each in Remedy} - CASES.keys()
    missing |= {text for text in TABLE if text and not any(text.startswith(name) for name in CASES)}
    assert missing == set()


def test_each_remedy_is_in_an_error():
    code = "".join(path.read_text() for path in (ROOT / "export").rglob("*.py") if path.name != "remedies.py")
    assert {each.name for each in Remedy} == set(re.findall(r"Remedy\.([A-Z]+)\b", code))


def test_entries_have_anchors_of_their_own():
    anchors = [each.anchor for each in Remedy] + [name.lower() for name in vars(errors) if name.endswith("Error")]
    assert len(set(anchors)) == len(anchors)
    assert all(re.fullmatch(r"[a-z0-9-]+", each) for each in anchors if not each.startswith("_"))


def test_an_error_has_one_address(monkeypatch):
    inner = errors.InputError("x", "float32 (batch, 3)", "nothing")
    assert str(inner).endswith("(keras-transformer explain inputerror)")
    outer = errors.RunError("onnx", "serve", inner)
    assert str(outer).count("keras-transformer explain") == 1
    text = str(errors.ExportError("no", Remedy.OPSET))
    assert text == f"no; {Remedy.OPSET.text} (keras-transformer explain {Remedy.OPSET.anchor})"


def test_the_page_of_the_documentation_is_that_of_the_code(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = importlib.import_module("errors_table").page()
    assert (ROOT / "docs" / "errors.md").read_text() == page
    titles = set(re.findall(r"^###? (.+)$", page, re.MULTILINE))
    kinds = {
        name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, errors.ExportError)
    }
    assert {each.title for each in Remedy} | {name for name in kinds if not name.startswith("_")} <= titles
