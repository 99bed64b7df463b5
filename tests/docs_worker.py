"""Runs the code blocks of pages one after another: `docs_worker.py DIRECTORY PAGE ...`; writes DIRECTORY/results.json.

A page runs in a folder of its own, in which "bert-folder" is a small checkpoint. A block of text behind one of Python or of
commands says what this prints; "..." stands for anything. Lines of the shell that begin with `keras-transformer` run too.
"""

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import shutil
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples"))  # For the page on the packages in it.
CHECKPOINT = ROOT / "tests" / "data" / "checkpoints" / "sentence-bert"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(page, names):
    """Raises what a block raises, or `AssertionError` for another output than the page says; returns how many have run."""
    printed, count = "", 0
    for language, code in _BLOCK.findall(page.read_text()):
        if language == "python":
            printed = run_python(code, page, names)
        elif language == "bash":
            printed = run_shell(code)
        elif language == "text" and printed is not None:
            right = doctest.OutputChecker().check_output(code, printed, _FLAGS)
            assert right, f"the page says:\n{code}\nit prints:\n{printed}"
        count += language in ("python", "bash")
    return count


def run_python(code, page, names):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(page), "exec"), names)
    return printed.getvalue()


def run_shell(code):
    """Runs the commands of this package; returns what they print, or None if there are others, which do not run."""
    from keras_transformer.export.commands import main as cli

    printed, runs_all = io.StringIO(), True
    for line in code.replace("\\\n", " ").splitlines():
        arguments = shlex.split(line, comments=True)
        if arguments[:1] == ["keras-transformer"]:
            with contextlib.redirect_stdout(printed):
                assert cli.main(arguments[1:]) == 0, line
        else:
            runs_all = runs_all and not arguments
    return printed.getvalue() if runs_all else None


def prepare(folder):
    """An empty folder to run in, but for a small checkpoint with its tokenizer."""
    checkpoint = folder / "bert-folder"
    checkpoint.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CHECKPOINT / name, checkpoint / name)
    os.chdir(folder)


def main(directory, pages):
    results = {}
    for page in pages:
        prepare(Path(directory, page.replace("/", "_")))
        start = time.process_time()
        try:
            results[page] = {"blocks": run_page(ROOT / "docs" / page, {"__name__": "__main__"})}
            results[page]["cpu_seconds"] = round(time.process_time() - start, 1)
        except BaseException:
            results[page] = {"error": traceback.format_exc()[-3000:]}
        Path(directory, "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
