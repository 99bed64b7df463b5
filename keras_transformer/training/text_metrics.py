"""BLEU and chrF of what a model writes, after each epoch."""

import keras

_METRICS = ("bleu", "chrf")


class TextMetrics(keras.callbacks.Callback):
    """Lets a model write at the end of an epoch, and adds corpus scores to its logs: "val_bleu" and "val_chrf".

    They stand in the history and the progress bar, and later callbacks can monitor them (`mode="max"`).

    Args:
        generate: function of a list of str to a list of str, or an object whose method `generate` is one, as a task model.
        sources: list of str. What it is given.
        references: list of str, one a source; or list of such lists, where a source has several references.
        metrics: names out of "bleu" and "chrf". Defaults to both.
        every: int >= 1. In every how many epochs. Defaults to 1.
        tokenize: str. sacreBLEU's tokenization for BLEU: "13a" (its standard), "none" for tokenized text, and others.
        lowercase: bool. Whether case counts nothing. Defaults to False.
        prefix: str. Before the names in the logs. Defaults to "val_".

    Raises:
        ImportError: sacrebleu is missing.
        ValueError: sources and references differ in number; an argument is out of its range; at the end of an epoch, another
            number of texts is written than was asked for.

    Example:

    >>> scores = TextMetrics(lambda texts: [text.upper() for text in texts], ["a dog runs there"], ["A DOG RUNS THERE"])
    >>> logs = {}
    >>> scores.on_epoch_end(0, logs)
    >>> {name: round(value, 6) for name, value in logs.items()}
    {'val_bleu': 100.0, 'val_chrf': 100.0}

    Reference: Post, arXiv 1804.08771 (sacreBLEU); Popovic, chrF: character n-gram F-score for automatic MT evaluation, WMT
    2015. Both from 0 to 100.
    """

    def __init__(
        self,
        generate,
        sources,
        references,
        *,
        metrics=_METRICS,
        every=1,
        tokenize="13a",
        lowercase=False,
        prefix="val_",
    ):
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
                raise ValueError(f"Expected one reference a source, {len(self.sources)}. Received: {len(stream)}")
        self.generate = getattr(generate, "generate", generate)
        self.every = every
        self.prefix = prefix
        self._scorers = _scorers(metrics, tokenize, lowercase)

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every or logs is None:
            return
        texts = list(self.generate(self.sources))
        if len(texts) != len(self.sources):
            raise ValueError(f"Expected {len(self.sources)} texts to be generated. Received: {len(texts)}")
        for name, scorer in self._scorers.items():
            logs[f"{self.prefix}{name}"] = float(scorer.corpus_score(texts, self.references).score)


def _streams(references):
    """Lists of one reference for every source: sacreBLEU's order."""
    references = list(references)
    if all(isinstance(reference, str) for reference in references):
        return [references]
    counts = {len(several) for several in references}
    if len(counts) != 1 or any(isinstance(several, str) for several in references):
        raise ValueError("Expected as many references for every source.")
    return [list(stream) for stream in zip(*references, strict=True)]


def _scorers(metrics, tokenize, lowercase):
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu: pip install sacrebleu") from error
    scorers = {"bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenize), "chrf": lambda: CHRF(lowercase=lowercase)}
    return {name: scorers[name]() for name in metrics}
