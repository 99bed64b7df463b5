import sys

import keras
import numpy as np
import pytest
import sacrebleu

from keras_transformer.training import TextMetrics

SOURCES = ["a", "b", "c"]
REFERENCES = ["The quick brown fox jumps .", "Two dogs run in the snow .", "A man sleeps ."]
WRITTEN = ["The quick brown fox jumped .", "two dogs run in snow .", "A man sleeps ."]


def scores(references=REFERENCES, **options):
    logs = {"loss": 1.0}
    TextMetrics(
        lambda texts: [WRITTEN[SOURCES.index(text)] for text in texts], SOURCES, references, **options
    ).on_epoch_end(0, logs)
    return logs


def test_scores_are_sacrebleus():
    logs = scores()
    assert logs["val_bleu"] == pytest.approx(sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score)
    assert logs["val_chrf"] == pytest.approx(sacrebleu.corpus_chrf(WRITTEN, [REFERENCES]).score)
    assert 20 < logs["val_bleu"] < 90


def test_options_reach_the_scorer():
    logs = scores(lowercase=True, tokenize="char", metrics=("bleu",), prefix="test_")
    expected = sacrebleu.corpus_bleu(WRITTEN, [REFERENCES], lowercase=True, tokenize="char").score
    assert logs == {"loss": 1.0, "test_bleu": pytest.approx(expected)}


def test_several_references():
    several = [[text, written] for text, written in zip(REFERENCES, WRITTEN, strict=True)]
    assert scores(several)["val_bleu"] == pytest.approx(100.0)


def test_in_fit_every_second_epoch():
    class Writer:
        def generate(self, texts):
            return [text.upper() for text in texts]

    seen = []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append("val_chrf" in logs))
    texts = TextMetrics(Writer(), ["one two three four"], ["ONE TWO THREE FOUR"], every=2)
    history = model.fit(np.ones((2, 1)), np.ones((2, 1)), epochs=5, callbacks=[texts, watch], verbose=0)
    assert seen == [False, True, False, True, False]
    assert history.history["val_bleu"] == pytest.approx([100.0, 100.0])


def test_without_sacrebleu(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match="pip install sacrebleu"):
        TextMetrics(len, ["a"], ["a"])


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((["a"], ["a", "b"]), {}, "one reference per source, 1. Received: 2"),
        (([], []), {}, "one reference per source, 0"),
        ((["a", "b"], [["a"], ["b", "c"]]), {}, "same number of references"),
        ((["a"], ["a"]), {"metrics": ("rouge",)}, "'rouge'. Valid names: bleu, chrf"),
        ((["a"], ["a"]), {"every": 0}, "every"),
    ],
)
def test_refuses(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        TextMetrics(list, *arguments, **options)


def test_refuses_another_number_of_texts():
    with pytest.raises(ValueError, match="Expected 2 texts"):
        TextMetrics(lambda texts: texts[:1], ["a", "b"], ["a", "b"]).on_epoch_end(0, {})
