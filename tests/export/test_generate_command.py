"""`keras-transformer generate`: streamed text, prompts from a file, and one line per error."""

import io
import subprocess
import sys

import pytest

from keras_transformer.export import load
from keras_transformer.export.commands import main as cli
from keras_transformer.generation import BeamSearch, Contrastive, Random, TreeSearch


@pytest.fixture
def bundle(language):
    return str(language.bundle("gpt"))


@pytest.fixture
def stdin(monkeypatch):
    """Returns a function that sets standard input to bytes."""
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def printed(capsys, *words):
    """Returns the output of a successful command."""
    assert cli.main(["generate", *map(str, words)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def fails(capsys, *words, status=1):
    """Returns the single error line of a failing command."""
    assert cli.main(["generate", *map(str, words)]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return captured.err.removeprefix("keras-transformer: error: ")


@pytest.mark.parametrize("backend", ["onnx", "tflite", "saved_model"])
def test_prints_what_generate_returns(bundle, capsys, backend):
    asked = ["--sampler", "random", "--top-k", "8", "--seed", "47", "--max-new-tokens", "14", "--backend", backend]
    expected = load(bundle, backend).generate("Grüße", sampler=Random(top_k=8), seed=47, max_new_tokens=14)
    assert len(expected) > 3
    assert printed(capsys, bundle, "Grüße", *asked) == expected + "\n"


def test_every_piece_is_shown_at_once(bundle, monkeypatch):
    class Terminal(io.StringIO):
        shown = []

        def flush(self):
            self.shown.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["generate", bundle, "abc", "--max-new-tokens", "9", "--seed", "130", "--sampler", "random"]) == 0
    pieces = list(load(bundle).stream("abc", max_new_tokens=9, seed=130, sampler="random"))
    assert len(pieces) > 3
    assert Terminal.shown == ["".join(pieces[:count]) for count in range(1, len(pieces) + 1)] + ["".join(pieces) + "\n"]


@pytest.mark.parametrize(
    "words, options",
    [
        ((), {}),
        (("--repetition-penalty", "1.5"), {"repetition_penalty": 1.5}),
        (("--sampler", "contrastive", "--top-k", "3"), {"sampler": Contrastive(top_k=3)}),
        (("--sampler", "beam", "--num-beams", "3"), {"sampler": BeamSearch(3)}),
        (("--sampler", "tree_search", "--num-simulations", "9"), {"sampler": TreeSearch(num_simulations=9)}),
        (
            ("--sampler", "random", "--temperature", "0.5", "--top-p", "0.9", "--min-p", "0.01", "--seed", "4"),
            {"sampler": Random(0.5, top_p=0.9, min_p=0.01), "seed": 4},
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) and value else None,
)
def test_options(bundle, capsys, words, options):
    expected = load(bundle).generate("The king", max_new_tokens=10, **options)
    assert printed(capsys, bundle, "The king", "--max-new-tokens", 10, *words) == expected + "\n"


def test_ends_before_any_stop(bundle, capsys):
    asked = ("--sampler", "random", "--top-k", "8", "--seed", "47", "--max-new-tokens", "14")
    whole = printed(capsys, bundle, "Grüße", *asked)[:-1]
    found = printed(capsys, bundle, "Grüße", *asked, "--stop", whole[5:7], "--stop", whole[3:5])
    assert found == whole[: whole.index(whole[3:5])] + "\n"


@pytest.mark.parametrize("name", ["gpt", "translator"])
def test_standard_input(language, capsys, stdin, name):
    bundle = language.bundle(name)
    model, asked = load(bundle), ("--max-new-tokens", "6")
    # One trailing newline is from the shell; others belong to the text.
    for data, prompt in ((b"x y\n", "x y"), (b"x y\r\n", "x y"), (b"a\n\n", "a\n"), ("é\nü".encode(), "é\nü")):
        stdin(data)
        assert printed(capsys, bundle, "-", *asked) == model.generate(prompt, max_new_tokens=6) + "\n"


def test_each_line_is_a_prompt(language, capsys, stdin):
    bundle = language.bundle("translator")
    lines = ["one two", "Grüße", "a", "one two three"]
    stdin("\n".join(lines).encode() + b"\r\n")
    texts = load(bundle, "tflite").generate(lines, max_new_tokens=8, sampler="beam")
    asked = ("--lines", "--backend", "tflite", "--max-new-tokens", 8, "--sampler", "beam", "--batch-size", 3)
    assert printed(capsys, bundle, "-", *asked) == "".join(" ".join(text.splitlines()) + "\n" for text in texts)


def test_a_line_break_of_a_text_does_not_make_two_lines(bundle, capsys, stdin, monkeypatch):
    from keras_transformer.generation import Generator

    monkeypatch.setattr(Generator, "generate", lambda self, prompts, **options: ["a\nb" for _ in prompts])
    stdin(b"x\ny\n")
    assert printed(capsys, bundle, "-", "--lines") == "a b\na b\n"


@pytest.mark.parametrize("backend", ["onnx", "tflite"])
def test_imports_neither_tensorflow_nor_keras(bundle, backend):
    script = (
        "import sys\nfrom keras_transformer.export.commands import main as cli\n"
        f"assert cli.main(['generate', {bundle!r}, 'abc', '--max-new-tokens', '4', '--backend', {backend!r}]) == 0\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'tensorflow', 'keras', 'torch', 'jax'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


def test_bad_input(language, bundle, capsys, stdin, tmp_path):
    assert fails(capsys, bundle, "") == "Prompt 0 is empty.\n"
    assert "max_new_tokens must be a positive integer. Received: 0" in fails(capsys, bundle, "a", "--max-new-tokens", 0)
    assert "exceeds the 24 that the model can hold" in fails(capsys, bundle, "a" * 30)
    assert "top_k must be a positive integer" in fails(capsys, bundle, "a", "--sampler", "random", "--top-k", 0)
    assert "num_beams must be a positive integer" in fails(capsys, bundle, "a", "--sampler", "beam", "--num-beams", 0)
    assert "repetition_penalty must be above 0" in fails(capsys, bundle, "a", "--repetition-penalty", 0)
    assert "stop must be text or token ids, not empty" in fails(capsys, bundle, "a", "--stop", "")
    # Python's representation of an argument that is not UTF-8.
    assert "Prompt 0 is not UTF-8 text" in fails(capsys, bundle, "a\udcff")
    for data, words, message in (
        (b"a\xff\n", (), "Prompt 0 is not UTF-8 text: invalid start byte at 1."),
        (b"\n", (), "Prompt 0 is empty."),
        (b"a\n\nb\n", ("--lines",), "Line 2 is empty."),
        (b"a\nb\xff\n", ("--lines",), "Line 2 is not UTF-8 text: invalid start byte at 1."),
        (b"", ("--lines",), "No prompts were given."),
        (b"a\n", ("--lines", "--batch-size", 0), "batch_size must be a positive integer. Received: 0"),
    ):
        stdin(data)
        assert fails(capsys, bundle, "-", *words) == message + "\n"
    assert "no such bundle" in fails(capsys, tmp_path / "nowhere", "a")
    assert "unknown format 'coreml'" in fails(capsys, bundle, "a", "--backend", "coreml")
    assert "has no tokenizer" in fails(capsys, language.bundle("llama"), "a")
    line = fails(capsys, language.bundle("serve"), "a", "--backend", "saved_model")
    assert "is not the bundle of a language model" in line


def test_wrong_usage(bundle, capsys):
    assert "--lines reads standard input: PROMPT must be -" in fails(capsys, bundle, "a", "--lines", status=2)
    for words, message in (
        (("--temperature", "2"), "--temperature is for --sampler random or tree_search, not greedy"),
        (
            ("--sampler", "beam", "--top-k", "2"),
            "--top-k is for --sampler random or contrastive or tree_search, not beam",
        ),
        (("--sampler", "random", "--num-beams", "2"), "--num-beams is for --sampler beam, not random"),
        (("--sampler", "best"), "invalid choice: 'best'"),
        (("--seed", "x"), "invalid int value: 'x'"),
    ):
        assert message in fails(capsys, bundle, "a", *words, status=2)
    assert "PROMPT" in fails(capsys, bundle, status=2)


def test_help_has_examples(capsys):
    assert cli.main(["generate", "--help"]) == 0
    assert 'examples:\n  keras-transformer generate bundle "ROMEO:"' in capsys.readouterr().out
