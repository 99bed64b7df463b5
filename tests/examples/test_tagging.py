"""The example of tagging, on sentences that this file makes up."""

import json

import numpy as np
import pytest

from keras_transformer.data import Sentence
from keras_transformer.export import load
from keras_transformer.text import WordPiece, load_tokenizer

pytestmark = pytest.mark.exhaustive

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


def test_each_subword_has_the_label_of_its_word(example_module):
    sentence = Sentence(("Newer", "York", "is"), (("B-place", "I-place", "B-person"),))
    ids, words, labels = example_module("tagging").encode(TOKENIZER, [sentence], TAGS)
    assert ids == [[2, 3, 4, 5]]
    assert words == [[0, 0, 1, 2]]
    # A tag that no word of the training set has counts nothing.
    assert labels == [[0, 0, 1, -100]]


def test_labels_follow_the_words_that_are_split_anew(example_module):
    example = example_module("tagging")
    example.SPLIT_RATE = 1 - 1e-12
    tokenizer = WordPiece(["[PAD]", "[UNK]", "n", "##e", "##w", "ne", "i", "##s"], lowercase=False)
    ids, labels = example.resplit(tokenizer, [[5, 4, 6, 7], [6]], [[2, 2, 0, 0], [1]], seed=0)
    assert ids == [[2, 3, 4, 6, 7], [6]] * example.NUM_SPLITS
    assert labels == [[2, 2, 2, 0, 0], [1]] * example.NUM_SPLITS


def test_the_tokens_of_a_word_decide_together(example_module):
    # Of word 1 the first token is for tag 0, 0.5 to 0.4, the second for tag 1, 0.6 to 0.3: 0.15 to 0.24 together.
    # Logits that differ by a constant say the same.
    logits = np.log([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.3, 0.6, 0.1], [1.0, 1.0, 1.0]])
    logits[1] += 500.0
    tag_words = example_module("tagging").tag_words
    assert tag_words(logits, [0, 1, 1], 2).tolist() == [2, 1]
    assert tag_words(logits, [], 1).tolist() == [2]


def oracle(best):
    """Logits that name the tag of each token of the one sentence."""
    return lambda inputs: np.eye(len(TAGS))[np.array([best])]


@pytest.mark.parametrize(
    "best, figure",
    [
        ([0, 0, 1, 2], "F1 100.00%, precision 100.00%, recall 100.00%"),
        ([0, 0, 2, 2], "F1 0.00%, precision 0.00%, recall 0.00%"),
        ([0, 0, 1, 0], "F1 66.67%, precision 50.00%, recall 100.00%"),
    ],
)
def test_entities_are_counted_whole(example_module, best, figure):
    sentence = Sentence(("Newer", "York", "is"), (("B-place", "I-place", "O"),))
    assert example_module("tagging").score(oracle(best), TOKENIZER, [sentence], TAGS) == figure


def test_a_word_without_a_subword_has_the_last_tag(example_module):
    # Normalization leaves nothing of the second word.
    sentence = Sentence(("new", "\u200b", "york"), (("B-place", "O", "O"),))
    figure = example_module("tagging").score(oracle([0, 2]), TOKENIZER, [sentence], TAGS)
    assert figure == "F1 100.00%, precision 100.00%, recall 100.00%"
