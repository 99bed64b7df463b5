"""The tree of one prompt: which texts have been looked at, how often, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Node:
    """A text, and what is known of those that continue it.

    Args:
        tokens: list of its new tokens.
        log_probability: float: what the model says of them.
        is_over: bool. Whether it is complete.

    Attributes:
        value: its own score, or None.
        children: dict of place among `choices` to `Node`, of those that have been visited.
        choices: int `(k,)`: the tokens that may follow, likeliest first; None where the model has not read the text.
    """

    def __init__(self, tokens: list[int], log_probability: float = 0.0, is_over: bool = False) -> None:
        self.tokens = tokens
        self.log_probability = log_probability
        self.is_over = is_over
        self.value: float | None = None
        self.children: dict[int, Node] = {}
        self.choices: np.ndarray | None = None

    def expand(self, choices: np.ndarray, priors: np.ndarray, log_probs: np.ndarray) -> None:
        """Notes what may follow: tokens `(k,)`, their priors, and the logarithms of their probabilities."""
        self.choices, self.priors, self._log_probs = choices, priors, log_probs
        self.visits, self.totals = np.zeros(len(choices), int), np.zeros(len(choices))

    def best(self, exploration: float) -> int:
        """The place of the child with the largest `Q + c P √N / (1 + n)`; Q is 0 where there has been no visit."""
        means = self.totals / np.maximum(self.visits, 1)
        bonus = exploration * self.priors * np.sqrt(1 + self.visits.sum()) / (1 + self.visits)
        return int(np.argmax(means + bonus))

    def child(self, place: int, is_over: Callable[[list[int]], bool]) -> Node:
        """The node at a place; `is_over` is a function of new tokens."""
        if place not in self.children and self.choices is not None:
            tokens = [*self.tokens, int(self.choices[place])]
            log_probability = self.log_probability + float(self._log_probs[place])
            self.children[place] = Node(tokens, log_probability, is_over(tokens))
        return self.children[place]


class Tree:
    """The search of one prompt.

    Args:
        exploration: float. c.
        is_over: function of the new tokens that tells whether a text is complete.

    Attributes:
        root: `Node`: the text that is certain.
    """

    def __init__(self, exploration: float, is_over: Callable[[list[int]], bool]) -> None:
        self.root = Node([])
        self._exploration = exploration
        self._is_over = is_over

    def select(self) -> tuple[list[tuple[Node, int]], Node]:
        """Goes down to a text that the model has not read, or that is complete.

        Every step counts as a visit at once, of no value until `back_up`: the next selection is so led elsewhere.

        Returns:
            `(path, leaf)`: pairs of node and place, and a `Node`.
        """
        node, path = self.root, []
        while node.choices is not None and not node.is_over:
            place = node.best(self._exploration)
            node.visits[place] += 1
            path.append((node, place))
            node = node.child(place, self._is_over)
        return path, node

    def back_up(self, path: list[tuple[Any, int]], value: float) -> None:
        """Gives every text on the way to a leaf what the leaf is worth."""
        for node, place in path:
            node.totals[place] += value

    def move(self) -> None:
        """The most visited child becomes the root, with what is below it; of equal ones the better, then the likelier."""
        root = self.root
        means = root.totals / np.maximum(root.visits, 1)
        place = max(range(len(root.visits)), key=lambda place: (root.visits[place], means[place], -place))
        self.root = root.child(place, self._is_over)
