"""Synthetic long-range tasks from a seed, as infinite batches for `model.fit`."""

import numpy as np


class Recall:
    """Keys with values in the first half of a row, questions in its last quarter; the label of a question is the value.

    Tokens: `noise` noise tokens, then one per pair of key and value, then one per question.
    """

    name = "recall"
    labels_tokens = True
    uses_positions = False
    num_layers, hidden_dim, learning_rate = 1, 64, 0.005
    window = 128
    keys = values = 8
    noise = 8

    def __init__(self, options):
        self.length = 64 if options.tiny else options.length or 2048
        if options.length:
            self.name = f"recall of {options.length}"
        self.batch_size = options.batch_size or (2 if options.tiny else 4)
        self.steps = options.steps or (4 if options.tiny else 400)
        self.test_steps = 1 if options.tiny else 8
        self.vocabulary_size = self.noise + self.keys * self.values + self.keys
        self.num_classes = self.values
        self.guessing = 1 / self.values
        self.description = (
            f"{self.length} tokens, {self.keys} keys with values in the first half; accuracy over the "
            f"{self.length // 4} questions, all in the last quarter, after {self.steps:,} steps."
        )

    def batches(self, seed):
        """Yields tokens `(B, T)`, labels `(B, T)` and weights, which are 0 except at questions."""
        generator = np.random.default_rng(seed)
        while True:
            yield self.batch(generator)

    def batch(self, generator):
        shape, half = (self.batch_size, self.length), self.length // 2
        tokens = generator.integers(0, self.noise, shape)
        answers = generator.integers(0, self.values, (self.batch_size, self.keys))
        for row in range(self.batch_size):
            positions = generator.permutation(half)[: self.keys]
            tokens[row, positions] = self.noise + np.arange(self.keys) * self.values + answers[row]
        asked = generator.integers(0, self.keys, (self.batch_size, half))
        is_question = np.arange(half) >= half // 2
        first = self.noise + self.keys * self.values
        tokens[:, half:] = np.where(is_question, first + asked, tokens[:, half:])
        labels, weights = np.zeros(shape), np.zeros(shape)
        labels[:, half:] = np.take_along_axis(answers, asked, axis=1)
        # Scaled by tokens per question, so that the loss is the mean over questions.
        weights[:, half:] = is_question * (self.length / is_question.sum())
        return tokens.astype("int32"), labels.astype("int32"), weights.astype("float32")


_OPERATORS = {
    "MAX": max,
    "MIN": min,
    "MED": lambda values: int(np.median(values)),
    "SM": lambda values: sum(values) % 10,
}
_WORDS = ["PAD", *map(str, range(10)), *_OPERATORS, "END"]


class ListOps:
    """Nested lists such as `[MAX 2 9 [MIN 4 7 ] 0 ]`, padded on the left; the label is the value."""

    name = "listops"
    labels_tokens = False
    uses_positions = True
    num_layers, hidden_dim, learning_rate = 2, 64, 0.003
    window = 16
    max_arguments = 5
    max_depth = 2

    def __init__(self, options):
        self.length = 32 if options.tiny else 64
        self.batch_size = options.batch_size or (2 if options.tiny else 64)
        self.steps = options.steps or (4 if options.tiny else 800)
        self.test_steps = 1 if options.tiny else 32
        self.vocabulary_size = len(_WORDS)
        self.num_classes = 10
        self.guessing = self._share_of_the_most_frequent()
        self.description = (
            f"expressions of {self.length // 8} to {self.length} tokens, up to {self.max_depth} deep; guessing is the "
            f"most frequent answer; {self.steps:,} steps."
        )

    def batches(self, seed):
        """Yields tokens `(B, T)` and labels `(B,)`."""
        generator = np.random.default_rng(seed)
        while True:
            yield self.batch(generator)

    def batch(self, generator):
        tokens, labels = np.zeros((self.batch_size, self.length), "int32"), np.zeros(self.batch_size, "int32")
        for row in range(self.batch_size):
            words, labels[row] = self.expression(generator)
            tokens[row, self.length - len(words) :] = [_WORDS.index(word) for word in words]
        return tokens, labels

    def expression(self, generator):
        """Returns words and value of a random expression within the length range."""
        while True:
            words, value = self._nested(generator, self.max_depth)
            if self.length // 8 <= len(words) <= self.length:
                return words, value

    def _nested(self, generator, depth):
        """Returns words and value of a list, which starts with its operator and ends with END."""
        if depth == 0 or (depth < self.max_depth and generator.random() < 0.6):
            digit = int(generator.integers(10))
            return [str(digit)], digit
        operator = list(_OPERATORS)[generator.integers(len(_OPERATORS))]
        parts = [self._nested(generator, depth - 1) for _ in range(generator.integers(2, self.max_arguments + 1))]
        words = [operator, *(word for part, _ in parts for word in part), "END"]
        return words, _OPERATORS[operator]([value for _, value in parts])

    def _share_of_the_most_frequent(self):
        generator = np.random.default_rng(0)
        return np.bincount([self.expression(generator)[1] for _ in range(500)]).max() / 500


TASKS = {each.name: each for each in (Recall, ListOps)}
