"""Private attributes of Keras: one package touches them, and its self-tests name what a version of Keras broke."""

import re
from pathlib import Path

import keras
import pytest

import keras_transformer
from keras_transformer.backend import keras_private
from keras_transformer.backend.keras_private.checks import CHECKS, KerasPrivateError, check

LIBRARY = Path(keras_transformer.__file__).parent
PACKAGE = LIBRARY / "backend" / "keras_private"
EXPORT = LIBRARY / "export" if (LIBRARY / "export").is_dir() else LIBRARY.parent / "export"
PRIVATE = re.compile(
    r"keras\.src|\b_keras_(?:mask|history)\b|AutocastScope|\bglobal_state\b|(?<!\bself)\.(?:_kernel|_embeddings|_initializer|_value)\b"
    r"|\._(?:layers|flatten_layers|seed_generators|tracker|untrack_variable|convert_input_args|autocast|deferred_initialize|"
    r"functional|nodes_by_depth|outbound_nodes|inbound_nodes|initial_epoch|get_variable_index|maybe_symbolic_build|call_spec|"
    r"losses|trainable_variables|non_trainable_variables)\b"
)


@pytest.mark.parametrize("attribute", CHECKS)
def test_installed_keras_has_the_private_attribute(attribute):
    CHECKS[attribute]()


def test_check_names_the_attribute_and_the_version(monkeypatch):
    def missing(layer):
        raise AttributeError("no _kernel")

    monkeypatch.setattr(keras_private, "kernel", missing)
    with pytest.raises(KerasPrivateError, match=rf"Keras {keras.__version__} .*: Dense\._kernel \(AttributeError"):
        check()


def test_every_function_has_a_self_test():
    used = "".join(path.read_text() for path in PACKAGE.glob("checks/*.py"))
    functions = [
        name for path in PACKAGE.glob("*.py") for name in re.findall(r"^def (\w+)", path.read_text(), re.MULTILINE)
    ]
    assert len(functions) > 40
    assert [name for name in functions if f"private.{name}(" not in used] == []


def test_no_other_package_touches_a_private_attribute():
    found = []
    for path in sorted({*LIBRARY.rglob("*.py"), *EXPORT.rglob("*.py")}):
        if path.is_relative_to(PACKAGE):
            continue
        lines = enumerate(path.read_text().splitlines(), 1)
        found += [f"{path.name}:{number}: {line.strip()}" for number, line in lines if PRIVATE.search(line)]
    assert found == []
