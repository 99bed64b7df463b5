"""Monte-Carlo tree search, guided by a language model and a scorer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.protocols import Sampler, ScoredSearch, Search
from keras_transformer.generation.search.batch_rows import BatchRows
from keras_transformer.generation.search.draft_model import draw_from
from keras_transformer.generation.search.tree import Node, Tree
from keras_transformer.utils.types import ArrayLike, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelInput, ModelOutput


@dataclasses.dataclass(frozen=True)
class TreeSearch(Sampler):
    """Monte-Carlo tree search (MCTS): the model provides the prior of each token, a scorer the value of each sequence.

    For every new token there are `num_simulations` simulations. Each descends from the committed sequence to a leaf that
    the model has not read. At every node it takes the token with the largest Q + c P √N / (1 + n), where Q is the mean
    score below the token, n the number of visits of the token, N the number of visits of the node, and P the probability of
    the token. The model reads the leaf, the scorer scores it, and the score is added to the Q of every edge on the path.
    Then the most visited token is committed, and its subtree is kept.

    Args:
        scorer: function of a list of texts that returns as many scores in [0, 1]; higher is better. It receives str for text
            prompts and lists of int for token prompts: prompt and continuation (only the output of an encoder-decoder),
            without the end token. None (default) scores by the geometric mean of the probabilities of the new tokens.
        num_simulations: int >= 1. Simulations for each new token. Default 50; 1 is greedy decoding.
        exploration: float >= 0. The constant c, the weight of P relative to Q. Default 1.
        temperature: float > 0. Logits are divided by it to compute P. Default 1.
        top_k: int >= 1, or None for all. Only the k most likely tokens are children of a node. Default 50.
        num_leaves: int >= 1. Number of leaves of each prompt that are read and scored in one batch. Default 8; with 1, each
            simulation uses the results of all earlier ones.
        rollout_length: int >= 0. Number of tokens sampled from the model after a leaf before it is scored, then discarded.
            Default 0, for no rollouts.

    Returns:
        `search(request)`: the `ScoredSearch` of one request.

    Raises:
        ValueError: an argument is out of range.
        GenerationError: during the search, if the scorer does not return as many scores in [0, 1].

    Notes:
        Leaves of one batch count as visits with value 0 until they are scored (virtual loss). With a rewindable cache, a
        row reads a sequence from where it differs from the previous one. Otherwise the cache is saved after the committed
        sequence, and leaves are read from there. Without rollouts the search is deterministic; with rollouts it is
        reproducible with a seed. It runs in Keras and in every runtime.

    Example:

    >>> from keras_transformer.generation.decoding_request import ModelInput, ModelOutput, DecodingRequest
    >>> request = DecodingRequest([np.array([0])], max_new_tokens=1, seeds=[None])
    >>> search = TreeSearch(lambda texts: [text[-1] / 2 for text in texts]).search(request)
    >>> search.advance(ModelOutput(np.log([[[0.2, 0.5, 0.3]]]), hidden_states=None))
    >>> search.results(), search.scores()
    ([[[2]]], [[1.0]])

    Reference: Chaffin et al., PPL-MCTS: Constrained Textual Generation Through Discriminator-Guided MCTS Decoding, arXiv
    2109.13582, section 3. There all tokens are children of a node, and leaves are read one by one. Leblond et al., arXiv
    2104.05336, use the method for translation.
    """

    scorer: Callable[[list[Any]], ArrayLike] | None = None
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
        """Returns the search of one request."""
        return BatchTrees(self, request)


class BatchTrees(ScoredSearch):
    """The decoding state of one request: the search trees of all prompts. Implements `protocols.ScoredSearch`.

    Args:
        options: `TreeSearch`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: TreeSearch, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.saves_cache = not request.cache_is_rewindable
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._trees = [Tree(options.exploration, request.is_finished) for _ in request.prompts]
        self._batch_rows = BatchRows(request, min(options.num_leaves, options.num_simulations))
        self._generators = [np.random.default_rng(seed) for seed in request.seeds]
        self._coroutine = self._run()
        next(self._coroutine)

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `protocols.Search`."""
        self.emitted = [[] for _ in self._trees]
        try:
            return self._coroutine.send(output)
        except StopIteration:
            return None

    def _run(self) -> Any:
        """Coroutine of the whole search: yields model inputs and is sent their outputs."""
        output = yield
        for prompt, tree in enumerate(self._trees):
            self._expand(prompt, tree.root, np.asarray(output.logits)[prompt, -1])
        while any(not tree.root.is_finished for tree in self._trees):
            left = self.options.num_simulations
            while left:
                yield from self._simulate(min(left, self._batch_rows.width))
                left -= min(left, self._batch_rows.width)
            for prompt, tree in enumerate(self._trees):
                if not tree.root.is_finished:
                    tree.commit()
                    self.emitted[prompt].append(tree.root.tokens[-1])
            committed = [self._sequence(prompt, tree.root.tokens) for prompt, tree in enumerate(self._trees)]
            model_input = self._batch_rows.commit(committed)
            if model_input is not None and any(not tree.root.is_finished for tree in self._trees):
                yield model_input

    def _simulate(self, count: int) -> Generator[ModelInput, ModelOutput, None]:
        """Runs `count` simulations of each prompt in one batch."""
        selected = [[] if tree.root.is_finished else [tree.select() for _ in range(count)] for tree in self._trees]
        # Several paths may end in one leaf. A leaf with a value is a complete sequence that has been scored before.
        leaves = [
            (prompt, leaf)
            for prompt, paths in enumerate(selected)
            for leaf in {id(leaf): leaf for _, leaf in paths}.values()
            if leaf.value is None
        ]
        sequences = [leaf.tokens for _, leaf in leaves]
        log_probabilities = np.array([leaf.log_probability for _, leaf in leaves])
        unread = [number for number, (_, leaf) in enumerate(leaves) if not leaf.is_finished]
        if unread:
            prompts = [leaves[number][0] for number in unread]
            logits, rows = yield from self._read(prompts, [sequences[number] for number in unread])
            for number, each in zip(unread, logits, strict=True):
                self._expand(*leaves[number], each)
            rollouts = yield from self._roll_out(prompts, [sequences[number] for number in unread], logits, rows)
            for number, (tokens, added) in zip(unread, rollouts, strict=True):
                sequences[number] = tokens
                log_probabilities[number] += added
        for (_, leaf), score in zip(leaves, self._scores(leaves, sequences, log_probabilities), strict=True):
            leaf.value = float(score)
        for tree, paths in zip(self._trees, selected, strict=True):
            for path, leaf in paths:
                tree.backpropagate(path, leaf.value or 0.0)

    def _read(
        self, prompts: Sequence[int], sequences: Sequence[list[int]], rows: ArrayLike | None = None
    ) -> Generator[ModelInput, ModelOutput, tuple[np.ndarray, np.ndarray]]:
        """Reads sequences of the given prompts; returns the logits after each and its batch row."""
        by_prompt = [[number for number, each in enumerate(prompts) if each == one] for one in range(len(self._trees))]
        whole = [self._sequence(prompt, tokens) for prompt, tokens in zip(prompts, sequences, strict=True)]
        if rows is None:
            assigned = self._batch_rows.assign([[whole[number] for number in numbers] for numbers in by_prompt])
            rows = np.zeros(len(prompts), int)
            for prompt, (numbers, each) in enumerate(zip(by_prompt, assigned, strict=True)):
                rows[numbers] = prompt * self._batch_rows.width + np.array(each, int)
        wanted: list[Sequence[int] | None] = [None] * (len(self._trees) * self._batch_rows.width)
        for row, sequence in zip(rows, whole, strict=True):
            wanted[row] = sequence
        model_input, indices = self._batch_rows.read(wanted)
        output = yield model_input
        return np.asarray(output.logits)[rows, indices[rows]], rows

    def _roll_out(
        self, prompts: list[int], sequences: list[list[int]], logits: Tensor, rows: ArrayLike
    ) -> Generator[ModelInput, ModelOutput, list[tuple[list[int], float]]]:
        """Samples tokens after each sequence; returns pairs of the longer sequence and the log-probability added."""
        sequences, added = [list(each) for each in sequences], np.zeros(len(sequences))
        active, logits = np.arange(len(sequences)), np.array(logits)
        for step in range(self.options.rollout_length):
            if not len(active):
                break
            if step:
                logits[active], _ = yield from self._read(
                    [prompts[each] for each in active], [sequences[each] for each in active], rows[active]
                )
            log_probs = numpy_ops.log_softmax(self._penalized(prompts, sequences, logits))
            uniforms = np.array([self._generators[prompts[each]].random() for each in active])
            for each, token in zip(active, draw_from(np.exp(log_probs[active]), uniforms), strict=True):
                sequences[each].append(int(token))
                added[each] += log_probs[each, token]
            active = np.array([each for each in active if not self.request.is_finished(sequences[each])], int)
        return list(zip(sequences, added, strict=True))

    def _expand(self, prompt: int, leaf: Node, logits: Tensor) -> None:
        logits = self._penalized([prompt], [leaf.tokens], logits[None])
        width = min(self.options.top_k or logits.shape[1], logits.shape[1])
        best, choices = numpy_ops.top_k(logits, width)
        allowed = np.isfinite(best[0])  # A grammar may allow fewer.
        best, choices = best[:, allowed], choices[:, allowed]
        log_probs = np.take_along_axis(numpy_ops.log_softmax(logits), choices, axis=1)
        leaf.expand(choices[0], numpy_ops.softmax(best / self.options.temperature)[0], log_probs[0])

    def _penalized(self, prompts: Sequence[int], sequences: Sequence[list[int]], logits: Tensor) -> Tensor:
        return self.request.process_logits(logits, zip(prompts, sequences, strict=True))

    def _scores(
        self, leaves: Sequence[tuple[int, object]], sequences: Sequence[list[int]], log_probabilities: np.ndarray
    ) -> ArrayLike:
        """Returns the score of each sequence, float `(leaves,)`."""
        if not sequences:
            return []
        if self.options.scorer is None:
            return np.exp(log_probabilities / [len(tokens) for tokens in sequences])
        texts = [self._scorer_input(prompt, tokens) for (prompt, _), tokens in zip(leaves, sequences, strict=True)]
        scores = np.asarray(self.options.scorer(texts), "float64").reshape(-1)
        if len(scores) != len(sequences) or not (np.all(scores >= 0) and np.all(scores <= 1)):
            raise GenerationError(
                f"scorer must return {len(sequences)} scores in [0, 1] for as many texts. "
                f"Received: {len(scores)}, {scores!r:.80}"
            )
        return scores

    def _scorer_input(self, prompt: int, tokens: list[int]) -> list[int] | str:
        """Returns a sequence as the scorer takes it: text, or tokens if there is no text."""
        tokens = tokens[:-1] if tokens[-1] in self.request.end_ids else tokens
        whole = self._sequence(prompt, tokens) if self.request.source is None else tokens
        return whole if self.request.decode is None else self.request.decode(whole)

    def _sequence(self, prompt: int, tokens: list[int]) -> list[int]:
        return [*self.request.prompts[prompt].tolist(), *tokens]

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of each prompt, as a list of one sequence."""
        return [[tree.root.tokens] for tree in self._trees]

    def scores(self) -> list[list[float]]:
        """Returns the score of each sequence in `results`."""
        return [[float(tree.root.value or 0.0)] for tree in self._trees]
