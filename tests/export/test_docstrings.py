"""Every example in a docstring of `export` runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformer.export

pytestmark = pytest.mark.slow

ROOT = Path(keras_transformer.export.__file__).parent
PATHS = [path for path in sorted(ROOT.rglob("*.py")) if re.search("^ +>>> ", path.read_text(), re.MULTILINE)]
CODE = """
import doctest, importlib, sys
flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
found = [doctest.testmod(importlib.import_module(name), optionflags=flags) for name in sys.argv[1:]]
sys.exit(any(each.failed or not each.attempted for each in found))
"""


def test_examples_run(tmp_path):
    """In a process of their own, because converters are used."""
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in PATHS]
    names = [".".join(("keras_transformer.export", *each)) for each in parts]
    assert len(names) > 20
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", CODE, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
