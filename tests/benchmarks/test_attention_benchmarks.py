"""The benchmarks of mechanisms at toy size, and what they are made of. Nothing here asserts speed."""

import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

pytestmark = pytest.mark.exhaustive

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = {
    "long_sequences": ["--only", "local", "--modes", "train"],
    "mechanisms_learn": ["--only", "local"],
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Both run side by side: name -> what each wrote as JSON."""
    directory = tmp_path_factory.mktemp("benchmarks")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    running = {}
    for name, options in COMMANDS.items():
        command = [sys.executable, f"benchmarks/{name}.py", "--tiny", *options, "--json", str(directory / name)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running[name] = subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)
    for process in running.values():
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return {name: json.loads((directory / name).read_text()) for name in running}


def test_time_and_memory_against_full_attention(reports):
    report = reports["long_sequences"]
    assert [(row["mode"], row["n"], row["mechanism"]) for row in report["rows"]] == [
        ("train", 64, "local"),
        ("train", 128, "local"),
    ]
    for row in report["rows"]:
        assert row["ms"] > 0
        assert row["mb"] >= 0
        assert row["of_full_time"] > 0
    faster = "not up to n = 128" if report["rows"][1]["of_full_time"] >= 1 else "from n = "
    assert any(f"train: local is faster than full attention {faster}" in note for note in report["notes"])


def test_accuracy_of_both_tasks(reports):
    rows = reports["mechanisms_learn"]["rows"]
    assert [(row["task"], row["mechanism"]) for row in rows] == [("recall", "local"), ("listops", "local")]
    for row in rows:
        assert "error" not in row, row["error"]
        assert row["steps"] == 4
        assert 0 <= row["accuracy"] <= 1
        assert 0.1 <= row["guessing"] <= 0.3


@pytest.fixture
def tasks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import learning_tasks

    options = types.SimpleNamespace(tiny=False, batch_size=3, steps=None, length=None)
    return {name: task(options) for name, task in learning_tasks.TASKS.items()}


def test_the_label_of_a_question_is_the_value_of_its_key(tasks):
    task = tasks["recall"]
    tokens, labels, weights = task.batch(np.random.default_rng(0))
    assert tokens.shape == (3, 2048)
    pairs, questions = task.noise, task.noise + task.keys * task.values
    for row, marks, asked in zip(tokens, labels, weights, strict=True):
        places = np.flatnonzero((row >= pairs) & (row < questions))
        assert len(places) == task.keys
        assert places.max() < 1024
        value_of = dict(divmod(int(token) - pairs, task.values) for token in row[places])
        assert len(value_of) == task.keys
        np.testing.assert_array_equal(np.flatnonzero(asked), np.arange(1536, 2048))
        assert [value_of[int(token) - questions] for token in row[1536:]] == marks[1536:].tolist()


def _value(words):
    """The value of an expression, read from the left; what is left of the words."""
    head, rest = words[0], words[1:]
    if head.isdigit():
        return int(head), rest
    values = []
    while rest[0] != "END":
        value, rest = _value(rest)
        values.append(value)
    ordered = sorted(values)
    middle = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) // 2
    return {"MAX": ordered[-1], "MIN": ordered[0], "SM": sum(values) % 10, "MED": middle}[head], rest[1:]


def test_the_label_of_a_list_is_its_value(tasks):
    import learning_tasks

    tokens, labels = tasks["listops"].batch(np.random.default_rng(0))
    for row, label in zip(tokens, labels, strict=True):
        words = [learning_tasks._WORDS[token] for token in row[row > 0]]
        assert 8 <= len(words) <= 64
        np.testing.assert_array_equal(row[: 64 - len(words)], 0)
        assert _value(words) == (label, [])


def test_crossovers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from long_sequences import crossovers

    def rows(name, shares):
        return [{"mode": "train", "n": n, "mechanism": name, "of_full_time": share} for n, share in shares.items()]

    found = crossovers(
        rows("softmax", {512: 1.0})
        + rows("a", {512: 1.5, 1024: 0.9, 2048: 1.1, 4096: 0.5, 8192: None})
        + rows("b", {512: 1.2})
        + rows("c", {512: 0.8, 1024: 0.4})
    )
    assert [line.removeprefix("train: ").replace("is faster than full attention ", "") for line in found] == [
        "a from n = 4096 on",
        "b not up to n = 512",
        "c from n = 512 on",
    ]


def test_words_of_the_page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import mechanisms_page

    class Example:
        """`y = x`: what it
        is.

        It does this. Time grows with `T · 1.5`, memory too. And that.

        Args:
            x: grows.

        Reference: Name et al., Title, arXiv 1234.56789, section 3. Deviations: none.
        """

    assert mechanisms_page.summary(Example) == "`y = x`: what it is."
    assert mechanisms_page.cost(Example) == "Time grows with `T · 1.5`, memory too."
    link = "Name et al., Title, [arXiv 1234.56789](https://arxiv.org/abs/1234.56789)"
    assert mechanisms_page.linked(mechanisms_page.reference(Example)) == link
    assert mechanisms_page.table([{"a": "1|2", "b": "3"}]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"


def test_a_rival_that_gave_up_keeps_what_it_has_found(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from long_sequences import Runs

    runs = Runs(types.SimpleNamespace(seconds=1.0))
    seconds = {512: 0.5, 1024: 2.0}
    monkeypatch.setattr(runs, "_measure", lambda rival, name, length, mode: {"seconds": seconds[length]})
    for _ in range(2):
        assert runs("ours", "softmax", 512, "train") == {"seconds": 0.5}
        assert runs("ours", "softmax", 1024, "train") == {"seconds": 2.0}
        assert runs("ours", "softmax", 2048, "train") == {"error": "not run: took 2 s at 1024"}
