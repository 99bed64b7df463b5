"""Public signatures are those of the snapshot, each public name is documented and tested, and a difference is seen."""

import ast
import importlib
from pathlib import Path

import pytest

from keras_transformer import attention, catalog, export, quantization, text

ROOT = Path(__file__).parents[1]


@pytest.fixture
def api(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("public_api")


def test_signatures_are_those_of_the_snapshot(api):
    """A break is a choice: write the file anew, and say in CHANGELOG.md what breaks and how to move."""
    stored = api.FILE.read_text(encoding="utf-8").splitlines()
    found = api.page().splitlines()
    assert [f"- {line}" for line in stored if line not in found] == []
    assert [f"+ {line}" for line in found if line not in stored] == []
    assert found == stored


def test_the_snapshot_has_every_name_of_the_packages(api):
    found = {name for name, _ in api.things()}
    for package in (attention, export, quantization):
        short = package.__name__.removeprefix("keras_transformer.")
        assert {f"{short}.{name}" for name in package.__all__} <= found


def test_everything_public_is_documented_and_tested(api):
    assert [*api.undocumented()] == []
    assert api.untested() == []


def lines_of(api, code):
    node = ast.parse(code).body[-1]
    return [*api.lines("package." + node.name, "keras_transformer", node)]


def test_lines_of_a_snapshot(api):
    assert lines_of(api, "def f(a: int, *, b: str='x', **rest) -> bool: ...") == [
        "package.f(a: int, *, b: str='x', **rest) -> bool"
    ]
    code = """
class C(Base):
    def __init__(self, size: int = 2) -> None: ...
    @property
    def width(self) -> int: ...
    @classmethod
    def of(cls, text: str) -> C: ...
    def call(self, x: Tensor) -> Tensor: ...
    def get_config(self) -> dict: ...
    def _hidden(self): ...
"""
    assert lines_of(api, code) == [
        "package.C(size: int=2)",
        "package.C.call(x: Tensor) -> Tensor",
        "package.C.of(text: str) -> C",
        "package.C.width: int",
    ]
    code = "@dataclasses.dataclass\nclass D:\n    a: int\n    b: str = 'x'\n    _c: int = 0\n    K: ClassVar[int] = 1"
    assert lines_of(api, code) == ["package.D(a: int, b: str = 'x')"]


def test_gaps_are_found(api):
    function = ast.parse('def f(alpha: int, beta: int) -> int:\n    """Returns alpha."""').body[0]
    assert [*api._gaps("f", ast.get_docstring(function), function)] == ["f: argument beta"]
    assert [*api._gaps("f", None, function)] == ["f: no docstring"]


def test_dicts_of_names():
    assert [*catalog.tables()] == [*catalog.SECTIONS]
    assert {name: cls.__name__ for name, cls in quantization.METHODS.items()} == {
        "nearest": "Nearest",
        "clipping": "Clipping",
        "gptq": "GPTQ",
        "awq": "AWQ",
    }


def test_a_folder_with_any_file_of_a_tokenizer_is_read_as_one(tmp_path):
    assert {"tokenizer.json", "vocab.txt", "merges.txt", "tokenizer.model"} <= {*text.HUGGINGFACE_FILES}
    with pytest.raises(text.TextError):
        text.from_huggingface(tmp_path)


def test_a_stream_ends_within_a_character():
    stream = text.TextStream(text.Bytes())
    first, second = text.Bytes().encode("é")
    assert [stream.push(first), stream.finish()] == ["", "\N{REPLACEMENT CHARACTER}"]
    assert second != first
