"""The fuzzer finds planted crashes, hangs, escapes and untyped errors, and makes the same cases again."""

import argparse
import ctypes
import os
import random
import signal
import time

import pytest

from tests.fuzz import sandbox
from tests.fuzz.__main__ import fuzz, judged
from tests.fuzz.mutations import json_bytes, mutated_bytes
from tests.fuzz.targets import TARGETS, Target, generator_of

pytest.importorskip("resource")


class TypedError(Exception):
    pass


class Subclass(TypedError):
    pass


def read_natively(path):
    """As a library in another language would: no event of Python."""
    libc = ctypes.CDLL(None)
    os.close(libc.open(os.fsencode(path), os.O_RDONLY))


def raises(error):
    raise error


FAULTS = {
    "fine": (lambda case: "read", "read", 0),
    "typed": (lambda case: raises(Subclass("no")), "Subclass", 0),
    "untyped": (lambda case: raises(KeyError("x")), "untyped KeyError", 1),
    "lines": (lambda case: raises(TypedError("a\nb")), "TypedError of several lines", 1),
    "crash": (lambda case: os.kill(os.getpid(), signal.SIGSEGV), f"signal {int(signal.SIGSEGV)}", 1),
    "exit": (lambda case: os._exit(0), "signal 0: it ended without an outcome", 1),
    "hang": (lambda case: time.sleep(60), "hang", 1),
    "memory": (lambda case: len(bytearray(2**40)), "memory", 1),
    "read": (lambda case: (case.parent / "outside").read_bytes(), "escape", 1),
    "native read": (lambda case: read_natively(case.parent / "outside"), "escape", 1),
    "write": (lambda case: (case.parent / "new").write_text("x"), "escape", 1),
    "other file": (lambda case: open("/etc/passwd").close(), "escape", 1),
    "own file": (lambda case: (case / "new").write_text("x"), "1", 0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_finds_a_planted_fault(name, tmp_path, capsys):
    action, word, findings = FAULTS[name]

    class Planted(Target):
        seconds = 2.0
        errors = ("TypedError",)

        def make(self, rng, case):
            (case / "file").write_bytes(rng.randbytes(8))

        def run(self, case):
            return action(case)

    options = argparse.Namespace(minutes=1.0, seed=0, case=3, findings=tmp_path / "findings")
    (tmp_path / "scratch").mkdir()
    summary = fuzz("planted", options, None, tmp_path / "scratch", Planted())
    assert dict(summary["cases"]) == {word: 1}
    assert len(summary["findings"]) == findings
    found = tmp_path / "findings" / "planted-0-3"
    assert found.exists() == bool(findings)
    if findings:
        assert (found / "file").read_bytes() == generator_of(0, "planted", 3).randbytes(8)
        assert "--targets planted --seed 0 --case 3" in capsys.readouterr().out


def test_the_same_seed_makes_the_same_mutations():
    value = {"a": [1, {"b": "text"}], "c": None, "d": 1.5}
    for number in range(50):
        one, other = (
            (mutated_bytes(rng, b"abc" * 99), json_bytes(rng, value, "/x")) for rng in map(random.Random, [number] * 2)
        )
        assert one == other
    assert len({json_bytes(random.Random(number), value, "/x") for number in range(50)}) > 30


def test_every_target_makes_a_case_again(tmp_path):
    target = TARGETS["http"]()
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        target.make(generator_of(1, "http", 2), tmp_path / name)
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert made[0] == made[1]
    assert made[0].keys() == {"body.json", "path"}


def test_words_of_outcomes():
    assert judged("raised KeyError.LookupError.Exception: 'a'", ("ExportError",)) == ("untyped KeyError", True)
    assert judged("raised InputError.ExportError.Exception: no", ("ExportError",)) == ("InputError", False)
    assert judged("done as before", ()) == ("as before", False)


def test_a_folder_that_cannot_be_watched_is_an_error(tmp_path):
    with pytest.raises(OSError, match="cannot be watched"):
        sandbox.Watch(tmp_path / "nowhere", tmp_path / "nothing")
