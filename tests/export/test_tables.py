"""Tables of the commands: fitted to a terminal, plain and complete elsewhere."""

import io
import sys
import time

import pytest

from keras_transformer.export.data.tables import Table, Verdict
from keras_transformer.export.reporting import progress
from keras_transformer.export.reporting.progress import Activity
from keras_transformer.export.reporting.terminal import show

NOTE = "device    one of a kind, with more words than fit"
TABLE = Table(
    ("format", "test accuracy", "what it is"),
    [("onnx", "99.1 %", "a file of many words"), ("saved_model", "5 %", "a folder")],
    texts=("format", "what it is"),
)
PLAIN = """\
device    one of a kind, with more words than fit
format       test accuracy  what it is
onnx                99.1 %  a file of many words
saved_model            5 %  a folder
not proven
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    def shown(columns, terminal=True, **environment):
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm", **environment}.items():
            monkeypatch.setenv(name, value)
        stream = Terminal() if terminal else io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            show([NOTE, TABLE, Verdict("not proven", is_good=False)])
        return stream.getvalue()

    return shown


def test_elsewhere_tables_are_plain_at_any_width(shown):
    assert shown(20, terminal=False) == PLAIN


def test_a_wide_terminal_gets_the_same_words_with_a_bold_head_and_a_red_verdict(shown):
    text = shown(100, NO_COLOR="1")
    assert [
        line.rstrip() for line in text.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    ] == PLAIN.splitlines()
    assert "\x1b[1mformat" in text
    assert "\x1b[1;31mnot proven" not in text


def test_verdicts_have_a_color_unless_no_color_is_set(shown, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mnot proven\x1b[0m" in shown(100)


def test_a_narrow_terminal_wraps_between_words(shown):
    lines = [
        line.rstrip() for line in shown(34, NO_COLOR="1").replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    ]
    assert lines == [
        "device    one of a kind, with more",
        "          words than fit",
        "                 test",
        "format       accuracy  what it is",
        "onnx           99.1 %  a file of",
        "                       many words",
        "saved_model       5 %  a folder",
        "not proven",
    ]


def test_a_terminal_too_narrow_for_the_columns_gets_a_line_for_each_cell(shown):
    lines = shown(26, NO_COLOR="1").replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert lines[-4:] == ["saved_model", "  test accuracy  5 %", "  what it is     a folder", "not proven"]


def test_without_rich_a_terminal_gets_plain_tables(shown, monkeypatch):
    for name in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    assert shown(20) == PLAIN


def test_work_is_announced_once_it_takes_long(monkeypatch):
    written = []
    monkeypatch.setattr(progress, "_AFTER_S", 0.05)
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    monkeypatch.setattr(progress, "_write", written.append)
    monkeypatch.setattr(progress, "_is_terminal", lambda: False)
    with Activity("short"):
        pass
    assert written == []
    with Activity("reading") as activity:
        while not written:
            time.sleep(0.01)
        activity.set("computing")
        while len(written) < 2:
            time.sleep(0.01)
    assert written == ["reading\n", "computing\n"]
