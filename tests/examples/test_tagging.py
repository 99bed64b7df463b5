"""The example of tagging, on sentences that this file makes up."""

import json

import numpy as np
import pytest

from keras_transformer.export import load
from keras_transformer.text import WordPiece, load_tokenizer
from keras_transformer.training import Sentence

WORDS = {"the": "DET", "a": "DET", "dog": "NOUN", "cats": "NOUN", "sleeps": "VERB", "walking": "VERB", "!": "PUNCT"}
SENTENCES = ["the dog sleeps !", "a dog walking !", "the cats walking", "a sleeps the dog !"]


def conllu(sentences):
    lines = []
    for sentence in sentences:
        lines.append(f"# text = {sentence}")
        lines += [f"{i}\t{word}\t_\t{WORDS[word]}" + "\t_" * 6 for i, word in enumerate(sentence.split(), 1)]
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory, run_example):
    folder, out = tmp_path_factory.mktemp("ewt"), tmp_path_factory.mktemp("out")
    for split, count in (("train", 40), ("dev", 2), ("test", 3)):
        (folder / f"en_ewt-ud-{split}.conllu").write_text(conllu((SENTENCES * 10)[:count]))
    return out, run_example("tagging", "--data-dir", folder, "--out", out, "--quick")


def test_all_runtimes_have_the_figure_of_keras(finished):
    _, printed = finished
    figure = next(line for line in printed.splitlines() if line.startswith("test: ")).removeprefix("test: ")
    assert figure.endswith("of 11 words")
    for backend in ("saved_model", "tflite", "onnx"):
        assert f"{backend}: {figure}" in printed


def test_leaves_all_that_tagging_needs(finished):
    out, _ = finished
    tags = json.loads((out / "bundle" / "manifest.json").read_text())["metadata"]["tags"]
    assert tags == ["DET", "NOUN", "PUNCT", "VERB"]
    inputs = load_tokenizer(out / "tokenizer")(["the dog !"])
    assert load(out / "bundle")(inputs)["logits"].shape[-1] == len(tags)
    assert len(json.loads((out / "history.json").read_text())["val_accuracy"]) == 2


TOKENIZER = WordPiece(["[PAD]", "[UNK]", "new", "##er", "york", "is"], lowercase=True)
TAGS = ["B-place", "I-place", "O"]


def test_labels_stand_at_the_first_subword_of_a_word(example_module):
    sentence = Sentence(("Newer", "York", "is"), (("B-place", "I-place", "O"),))
    ids, words, labels = example_module("tagging").encode(TOKENIZER, [sentence], TAGS)
    assert ids == [[2, 3, 4, 5]]
    assert words == [[0, 0, 1, 2]]
    assert labels == [[0, -100, 1, 2]]


def oracle(best):
    """Logits that name the tag of each token of the one sentence."""
    return lambda inputs: np.eye(len(TAGS))[np.array([best])]


@pytest.mark.parametrize(
    "best, figure",
    [
        # What the continuation says does not count.
        ([0, 2, 1, 2], "F1 100.00%, precision 100.00%, recall 100.00%"),
        ([0, 2, 2, 2], "F1 0.00%, precision 0.00%, recall 0.00%"),
        ([0, 2, 1, 0], "F1 66.67%, precision 50.00%, recall 100.00%"),
    ],
)
def test_entities_are_counted_whole(example_module, best, figure):
    sentence = Sentence(("Newer", "York", "is"), (("B-place", "I-place", "O"),))
    assert example_module("tagging").score(oracle(best), TOKENIZER, [sentence], TAGS) == figure


def test_a_word_without_a_subword_has_the_last_tag(example_module):
    # Normalisation leaves nothing of the second word.
    sentence = Sentence(("new", "\u200b", "york"), (("B-place", "O", "O"),))
    figure = example_module("tagging").score(oracle([0, 2]), TOKENIZER, [sentence], TAGS)
    assert figure == "F1 100.00%, precision 100.00%, recall 100.00%"
