"""The three starts of the README run as they stand, the last with a small model in place of the file."""

import re
from pathlib import Path

import keras
import pytest

from keras_transformer import attention, checkpoints, models, tasks
from keras_transformer.text import BytePair, HuggingFaceTokenizer

pytestmark = pytest.mark.slow

README = Path(__file__).parents[1] / "README.md"
START = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
OWN_MODEL, TEXTS, CHECKPOINT = START.finditer(README.read_text())
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs the code of a start in a folder of its own; returns its names and what it printed."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("exports in this process")
    monkeypatch.chdir(tmp_path)

    def run(code):
        names = {}
        exec(compile(code, str(README), "exec"), names)
        return names, capsys.readouterr().out

    return run


def test_readme_is_short():
    assert len(README.read_text().splitlines()) <= 150


def test_counts_are_those_of_the_dicts():
    assert f"| {len(attention.MECHANISMS)} [mechanisms]" in README.read_text()
    assert f"| {len(models.MODELS)} [architectures]" in README.read_text()


def test_own_model(run):
    names, printed = run(OWN_MODEL["code"])
    assert names["predict"](names["x"][:1])["benign"].shape == (1, 1)
    # The same table, with other figures, below the folder of the bundle.
    expected = OWN_MODEL["output"].splitlines()
    assert [_words(line) for line in printed.splitlines()[1:]] == [_words(line) for line in expected[1:]]
    assert abs(float(printed.splitlines()[-1].split("%")[0]) - float(expected[-1].split("%")[0])) < 2
    assert Path("tumors", "report.html").exists()


def test_texts(run):
    _, printed = run(TEXTS["code"])
    assert printed == TEXTS["output"]


def test_checkpoint(run, monkeypatch):
    """The file is 98 MB: a small model is chatted with in its place, quantized in another way, as it has no blocks."""
    monkeypatch.setattr(checkpoints, "from_gguf", lambda file: _small_chat_model())
    code = CHECKPOINT["code"].replace("max_new_tokens=40", "max_new_tokens=4").replace('"gguf"', '"int8"')
    names, printed = run(code)
    assert printed.startswith(names["model"].chat("What is the capital of France?", max_new_tokens=4) + "\n")
    assert re.search(r"^\d+ MB$", printed, re.MULTILINE)
    assert set(names["report"].artifacts) == {"tflite"}


def test_page_on_gguf_files(run, monkeypatch):
    """Its calls, with the small model in place of the file."""
    monkeypatch.setattr(checkpoints, "from_gguf", lambda file: _small_chat_model())
    page = (README.parent / "docs" / "cookbook" / "gguf.md").read_text()
    blocks = [code for code in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "openai" not in code]
    code = "".join(blocks).replace("max_new_tokens=40", "max_new_tokens=4").replace('"gguf"', '"int8"')
    names, printed = run(code.replace('["tflite", "onnx"]', '["onnx"]'))
    assert len(blocks) == 2
    assert printed.startswith(names["model"].chat("What is the capital of France?", max_new_tokens=4) + "\n")
    assert set(names["report"].artifacts) == {"onnx"}


def _small_chat_model():
    words = BytePair.train(["the cat sat on the mat and the dog sat on the cat"], 290)
    tokenizer = HuggingFaceTokenizer(words._files()["tokenizer.json"].decode(), chat_template=TEMPLATE)
    size = models.Size(num_layers=1, hidden_dim=64, num_heads=2, intermediate_dim=96)
    backbone = models.Llama(size, tokenizer.vocabulary_size)
    return tasks.LanguageModel(backbone, tokenizer=tokenizer, end_id=tokenizer.end_id)


def _words(line):
    return re.findall(r"[a-z_]{3,}", line)
