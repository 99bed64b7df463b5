"""Monte-Carlo tree search: texts that a scorer likes, among those that the model finds likely."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.repetition import penalize_rows
from keras_transformer.generation.search.batch_rows import BatchRows
from keras_transformer.generation.search.draft import draw_from
from keras_transformer.generation.search.tree import Tree
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelInput, ModelOutput
    from keras_transformer.generation.protocols import Search


@dataclasses.dataclass(frozen=True)
class TreeSearch:
    """Looks ahead in a tree of continuations, where the model says what is likely and a scorer what is good.

    For every token there are `num_simulations` simulations. Each goes down from the text that is certain to one that has
    not been read, at every step to the token with the largest Q + c P √N / (1 + n): Q is the mean score of what has been
    found behind the token, n how often it has been taken, N how often the text before it, and P its probability. The model
    reads that text, the scorer judges it, and what it is worth goes into the Q of all steps that led there. Then the token
    that was taken most often becomes certain, and what has been found behind it is kept.

    Args:
        scorer: function of a list of texts to as many scores in [0, 1]; the more, the better. It is given str where prompts
            are text, lists of ints where they are tokens: prompt and continuation, of an encoder-decoder the answer alone,
            without the end token. None scores by the geometric mean of the model's probabilities of the new tokens.
        num_simulations: int >= 1. For each token. Default 50; 1 is greedy.
        exploration: float >= 0. c: how much P counts beside Q. Default 1.
        temperature: float > 0. Logits are divided by it before they become P; above 1 makes unlikely tokens likelier.
        top_k: int >= 1, or None for all. Only the k most likely tokens continue a text. Default 50.
        num_leaves: int >= 1. So many texts of each prompt are read, and scored, together. Default 8; with 1 each simulation
            knows the results of all before it.
        rollout_length: int >= 0. So many tokens are drawn from the model behind a text before it is scored; they are
            forgotten then. Default 0: texts are scored as they are.

    Returns:
        `search(request)`: the course of one request. Its `scores()` are those of the texts.

    Raises:
        ValueError: an argument is out of its range.
        GenerationError: while it runs, where the scorer gives something else than as many scores in [0, 1].

    Notes:
        Texts that are read together are led apart by counting each as a visit of no value until its score is known. In a
        cache that can go back, a text is read from where it differs from the one before in its row; one of fixed size is
        kept as it is after what is certain, and texts are read from there. Without rollouts nothing is drawn; with them a
        seed gives the same text again. The same in Keras and in every runtime.

    Example:

    >>> from keras_transformer.generation.decoding_request import ModelInput, ModelOutput, DecodingRequest
    >>> request = DecodingRequest([np.array([0])], max_new_tokens=1, seeds=[None])
    >>> search = TreeSearch(lambda texts: [text[-1] / 2 for text in texts]).search(request)
    >>> search.advance(ModelOutput(np.log([[[0.2, 0.5, 0.3]]]), hidden_states=None))
    >>> search.results(), search.scores()
    ([[[2]]], [[1.0]])

    Reference: Chaffin et al., PPL-MCTS: Constrained Textual Generation Through Discriminator-Guided MCTS Decoding, arXiv
    2109.13582, section 3. There all tokens continue a text, and leaves are read one by one. Leblond et al., arXiv
    2104.05336, search so for translations.
    """

    scorer: Callable | None = None
    num_simulations: int = 50
    exploration: float = 1.0
    temperature: float = 1.0
    top_k: int | None = 50
    num_leaves: int = 8
    rollout_length: int = 0

    has_scores = True

    def __post_init__(self) -> None:
        if self.scorer is not None and not callable(self.scorer):
            raise ValueError(f"scorer must be a function of a list of texts, or None. Received: {self.scorer!r}")
        for name, least in (("num_simulations", 1), ("num_leaves", 1), ("rollout_length", 0), ("top_k", 1)):
            value = getattr(self, name)
            if not (name == "top_k" and value is None) and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name} must be an integer of at least {least}. Received: {value!r}")
        if not self.exploration >= 0:
            raise ValueError(f"exploration must not be negative. Received: {self.exploration!r}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0. Received: {self.temperature!r}")

    def search(self, request: DecodingRequest) -> Search:
        """The course of one request."""
        return BatchTrees(self, request)


class BatchTrees:
    """The course of one request: the trees of all prompts, which go on in step.

    Args:
        options: `TreeSearch`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: Any, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.keeps = not request.cache_is_rewindable
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._trees = [Tree(options.exploration, request.is_over) for _ in request.prompts]
        self._lanes = BatchRows(request, min(options.num_leaves, options.num_simulations))
        self._generators = [np.random.default_rng(seed) for seed in request.seeds]
        self._course = self._run()
        next(self._course)

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `TokenSearch`."""
        self.emitted = [[] for _ in self._trees]
        try:
            return self._course.send(output)
        except StopIteration:
            return None

    def _run(self):
        """A coroutine: it yields what is to be read, and is sent what the model says of it."""
        output = yield
        for row, tree in enumerate(self._trees):
            self._expand(row, tree.root, np.asarray(output.logits)[row, -1])
        while any(not tree.root.is_over for tree in self._trees):
            left = self.options.num_simulations
            while left:
                yield from self._simulate(min(left, self._lanes.width))
                left -= min(left, self._lanes.width)
            for row, tree in enumerate(self._trees):
                if not tree.root.is_over:
                    tree.move()
                    self.emitted[row].append(tree.root.tokens[-1])
            model_input = self._lanes.move([self._text(row, tree.root.tokens) for row, tree in enumerate(self._trees)])
            if model_input is not None and any(not tree.root.is_over for tree in self._trees):
                yield model_input

    def _simulate(self, count: int):
        """So many simulations of each prompt at once."""
        found = [[] if tree.root.is_over else [tree.select() for _ in range(count)] for tree in self._trees]
        # Two ways may end in one leaf; what has a value is complete, and is worth that every time.
        leaves = [
            (row, leaf)
            for row, ways in enumerate(found)
            for leaf in {id(leaf): leaf for _, leaf in ways}.values()
            if leaf.value is None
        ]
        texts = [leaf.tokens for _, leaf in leaves]
        log_probabilities = np.array([leaf.log_probability for _, leaf in leaves])
        unread = [number for number, (_, leaf) in enumerate(leaves) if not leaf.is_over]
        if unread:
            rows = [leaves[number][0] for number in unread]
            logits, lanes = yield from self._read(rows, [texts[number] for number in unread])
            for number, each in zip(unread, logits, strict=True):
                self._expand(*leaves[number], each)
            rollout = yield from self._roll_out(rows, [texts[number] for number in unread], logits, lanes)
            for number, (tokens, added) in zip(unread, rollout, strict=True):
                texts[number] = tokens
                log_probabilities[number] += added
        for (_, leaf), score in zip(leaves, self._scores(leaves, texts, log_probabilities), strict=True):
            leaf.value = float(score)
        for tree, ways in zip(self._trees, found, strict=True):
            for path, leaf in ways:
                tree.back_up(path, leaf.value or 0.0)

    def _read(self, rows: Any, texts: Any, lanes: Any = None):
        """Requests that texts of the prompts `rows` are read; returns the logits after each, and the lane of each."""
        by_row = [[number for number, each in enumerate(rows) if each == row] for row in range(len(self._trees))]
        whole = [self._text(row, tokens) for row, tokens in zip(rows, texts, strict=True)]
        if lanes is None:
            placed = self._lanes.place([[whole[number] for number in numbers] for numbers in by_row])
            lanes = np.zeros(len(rows), int)
            for row, (numbers, each) in enumerate(zip(by_row, placed, strict=True)):
                lanes[numbers] = row * self._lanes.width + np.array(each, int)
        wanted: list[Any] = [None] * (len(self._trees) * self._lanes.width)
        for lane, text in zip(lanes, whole, strict=True):
            wanted[lane] = text
        model_input, places = self._lanes.read(wanted)
        output = yield model_input
        return np.asarray(output.logits)[lanes, places[lanes]], lanes

    def _roll_out(self, rows: Any, texts: Any, logits: Tensor, lanes: Any):
        """Samples continuations of texts; returns the extended texts, and the log-probabilities of what was added."""
        texts, added = [list(text) for text in texts], np.zeros(len(texts))
        going, logits = np.arange(len(texts)), np.array(logits)
        for step in range(self.options.rollout_length):
            if not len(going):
                break
            if step:
                logits[going], _ = yield from self._read(
                    [rows[each] for each in going], [texts[each] for each in going], lanes[going]
                )
            log_probs = numpy_ops.log_softmax(self._penalized(rows, texts, logits))
            uniforms = np.array([self._generators[rows[each]].random() for each in going])
            for each, token in zip(going, draw_from(np.exp(log_probs[going]), uniforms), strict=True):
                texts[each].append(int(token))
                added[each] += log_probs[each, token]
            going = np.array([each for each in going if not self.request.is_over(texts[each])], int)
        return list(zip(texts, added, strict=True))

    def _expand(self, row: int, leaf: Any, logits: Tensor) -> None:
        logits = self._penalized([row], [leaf.tokens], logits[None])
        width = min(self.options.top_k or logits.shape[1], logits.shape[1])
        best, choices = numpy_ops.top_k(logits, width)
        log_probs = np.take_along_axis(numpy_ops.log_softmax(logits), choices, axis=1)
        leaf.expand(choices[0], numpy_ops.softmax(best / self.options.temperature)[0], log_probs[0])

    def _penalized(self, rows: Any, texts: Any, logits: Tensor):
        whole = (self._text(row, tokens) for row, tokens in zip(rows, texts, strict=True))
        return penalize_rows(logits, whole, self.request.repetition_penalty)

    def _scores(self, leaves: Any, texts: Any, log_probabilities: Any):
        """The score of each text, float `(leaves,)`."""
        if not texts:
            return []
        if self.options.scorer is None:
            return np.exp(log_probabilities / [len(tokens) for tokens in texts])
        judged = [self._judged(row, tokens) for (row, _), tokens in zip(leaves, texts, strict=True)]
        scores = np.asarray(self.options.scorer(judged), "float64").reshape(-1)
        if len(scores) != len(texts) or not (np.all(scores >= 0) and np.all(scores <= 1)):
            raise GenerationError(
                f"scorer must give {len(texts)} scores in [0, 1] for as many texts. Received: {len(scores)}, {scores!r:.80}"
            )
        return scores

    def _judged(self, row: int, tokens: list[int]):
        """A text as the scorer sees it."""
        tokens = tokens[:-1] if tokens[-1] in self.request.end_ids else tokens
        whole = self._text(row, tokens) if self.request.source is None else tokens
        return whole if self.request.decode is None else self.request.decode(whole)

    def _text(self, row: int, tokens: list[int]):
        return [*self.request.prompts[row].tolist(), *tokens]

    def results(self) -> list[list[list[int]]]:
        """The new tokens of each row, as a list of lists with one text in each."""
        return [[tree.root.tokens] for tree in self._trees]

    def scores(self) -> list[list[float]]:
        """The score of each text in `results`."""
        return [[float(tree.root.value or 0.0)] for tree in self._trees]
