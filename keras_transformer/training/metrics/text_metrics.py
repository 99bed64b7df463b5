"""BLEU and chrF of generated text after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import keras

from keras_transformer.utils.types import Logs

_METRICS = ("bleu", "chrf")


class TextGenerator(Protocol):
    """An object that generates a text for each source, such as a task model."""

    def generate(self, sources: list[str], /) -> Iterable[str]: ...


class TextMetrics(keras.callbacks.Callback):
    """Callback that generates text after an epoch and adds corpus scores to the logs: "val_bleu" and "val_chrf".

    The scores are in the history and the progress bar, and later callbacks can monitor them (`mode="max"`).

    Args:
        generate: function of a list of str that returns a list of str, or an object with such a method `generate`, such as
            a task model.
        sources: list of str. Inputs of `generate`.
        references: list of str, one per source; or list of lists of str, for several references per source.
        metrics: names out of "bleu" and "chrf". Default: both.
        every: int >= 1. Interval in epochs. Default 1.
        tokenize: str. sacreBLEU's tokenization for BLEU: "13a" (its default), "none" for tokenized text, and others.
        lowercase: bool. Whether to ignore case. Default False.
        prefix: str. Prefix of the names in the logs. Default "val_".

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: numbers of sources and references differ; an argument is out of its range; at the end of an epoch,
            `generate` returns another number of texts than sources.

    Example:

    >>> scores = TextMetrics(lambda texts: [text.upper() for text in texts], ["a dog runs there"], ["A DOG RUNS THERE"])
    >>> logs = {}
    >>> scores.on_epoch_end(0, logs)
    >>> {name: round(value, 6) for name, value in logs.items()}
    {'val_bleu': 100.0, 'val_chrf': 100.0}

    Reference: Post, arXiv 1804.08771 (sacreBLEU); Popovic, chrF: character n-gram F-score for automatic MT evaluation, WMT
    2015. Both range from 0 to 100.
    """

    def __init__(
        self,
        generate: Callable[[list[str]], Iterable[str]] | TextGenerator,
        sources: Iterable[str],
        references: Iterable[str] | Iterable[Sequence[str]],
        *,
        metrics: Sequence[str] = _METRICS,
        every: int = 1,
        tokenize: str = "13a",
        lowercase: bool = False,
        prefix: str = "val_",
    ) -> None:
        super().__init__()
        unknown = [name for name in metrics if name not in _METRICS]
        if unknown:
            raise ValueError(f"Unknown metric {unknown[0]!r}. Valid names: {', '.join(_METRICS)}")
        if every < 1:
            raise ValueError(f"every must be at least 1. Received: {every}")
        self.sources = list(sources)
        self.references = _streams(references)
        for stream in self.references:
            if len(stream) != len(self.sources) or not stream:
                raise ValueError(f"Expected one reference per source, {len(self.sources)}. Received: {len(stream)}")
        self._generate: Any = getattr(generate, "generate", generate)
        self.every = every
        self.prefix = prefix
        self._scorers = _scorers(metrics, tokenize, lowercase)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if (epoch + 1) % self.every or logs is None:
            return
        texts = list(self._generate(self.sources))
        if len(texts) != len(self.sources):
            raise ValueError(f"Expected {len(self.sources)} texts to be generated. Received: {len(texts)}")
        for name, scorer in self._scorers.items():
            logs[f"{self.prefix}{name}"] = float(scorer.corpus_score(texts, self.references).score)


def _streams(references):
    """Returns lists of one reference per source, the order of sacreBLEU."""
    references = list(references)
    if all(isinstance(reference, str) for reference in references):
        return [references]
    counts = {len(several) for several in references}
    if len(counts) != 1 or any(isinstance(several, str) for several in references):
        raise ValueError("Expected the same number of references for every source.")
    return [list(stream) for stream in zip(*references, strict=True)]


def _scorers(metrics, tokenize, lowercase):
    try:
        from sacrebleu.metrics import BLEU, CHRF  # type: ignore[attr-defined]  # Re-exported without __all__.
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu: pip install sacrebleu") from error
    scorers = {"bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenize), "chrf": lambda: CHRF(lowercase=lowercase)}
    return {name: scorers[name]() for name in metrics}
