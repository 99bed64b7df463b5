"""The search tree of one prompt, for Monte-Carlo tree search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Node:
    """A sequence, and the statistics of its continuations.

    Args:
        tokens: list of int. New tokens of the sequence.
        log_probability: float. Log-probability of these tokens under the model.
        is_finished: bool. Whether the sequence is complete.

    Attributes:
        value: float or None. Score of the sequence; None before it is scored.
        children: dict of index in `choices` to `Node`, for the visited children.
        choices: int `(k,)`. Candidate next tokens, most likely first; None before the model has read the sequence.
    """

    def __init__(self, tokens: list[int], log_probability: float = 0.0, is_finished: bool = False) -> None:
        self.tokens = tokens
        self.log_probability = log_probability
        self.is_finished = is_finished
        self.value: float | None = None
        self.children: dict[int, Node] = {}
        self.choices: np.ndarray | None = None

    def expand(self, choices: np.ndarray, priors: np.ndarray, log_probs: np.ndarray) -> None:
        """Sets the candidate next tokens, their priors and their log-probabilities, each `(k,)`."""
        self.choices, self.priors, self._log_probs = choices, priors, log_probs
        self.visits, self.totals = np.zeros(len(choices), int), np.zeros(len(choices))

    def best_child(self, exploration: float) -> int:
        """Returns the index of the child with the largest `Q + c P √N / (1 + n)`; Q is 0 for an unvisited child."""
        means = self.totals / np.maximum(self.visits, 1)
        bonus = exploration * self.priors * np.sqrt(1 + self.visits.sum()) / (1 + self.visits)
        return int(np.argmax(means + bonus))

    def child(self, index: int, is_finished: Callable[[list[int]], bool]) -> Node:
        """Returns the child at an index, which is created if needed; `is_finished` is a function of the new tokens."""
        if index not in self.children and self.choices is not None:
            tokens = [*self.tokens, int(self.choices[index])]
            log_probability = self.log_probability + float(self._log_probs[index])
            self.children[index] = Node(tokens, log_probability, is_finished(tokens))
        return self.children[index]


class Tree:
    """The search tree of one prompt.

    Args:
        exploration: float. The constant c.
        is_finished: function of the new tokens that returns whether a sequence is complete.

    Attributes:
        root: `Node`. The committed sequence.
    """

    def __init__(self, exploration: float, is_finished: Callable[[list[int]], bool]) -> None:
        self.root = Node([])
        self._exploration = exploration
        self._is_finished = is_finished

    def select(self) -> tuple[list[tuple[Node, int]], Node]:
        """Descends to a leaf: a node that the model has not read, or a complete sequence.

        Each edge counts as a visit with value 0 until `backpropagate` (virtual loss), so that further selections take other
        paths.

        Returns:
            `(path, leaf)`: list of pairs of node and child index, and a `Node`.
        """
        node, path = self.root, []
        while node.choices is not None and not node.is_finished:
            index = node.best_child(self._exploration)
            node.visits[index] += 1
            path.append((node, index))
            node = node.child(index, self._is_finished)
        return path, node

    def backpropagate(self, path: list[tuple[Node, int]], value: float) -> None:
        """Adds the value of a leaf to every edge of its path."""
        for node, index in path:
            node.totals[index] += value

    def commit(self) -> None:
        """Makes the most visited child the root and keeps its subtree; ties by mean value, then by probability."""
        root = self.root
        means = root.totals / np.maximum(root.visits, 1)
        index = max(range(len(root.visits)), key=lambda index: (root.visits[index], means[index], -index))
        self.root = root.child(index, self._is_finished)
