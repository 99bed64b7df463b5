"""A small trained head that proposes tokens from the hidden state of the target model."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.search.draft_model import Draft, DraftedTexts, Proposals
from keras_transformer.utils.types import Path, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.generation_spec import GenerationSpec
    from keras_transformer.generation.protocols import TokenSampler

EPSILON = 1e-6
# The logit of tokens that a head does not know: finite, so that a grammar may allow none but these.
_UNKNOWN = -1e30


@dataclasses.dataclass(frozen=True, eq=False)
class DraftHead:
    """A draft for `Speculative` that reads the hidden state of the target model: no second model, no second cache.

    It knows `M` frequent tokens of the vocabulary, and proposes only those. With h the input of the target's own head at the
    last token that it has read, x_1 the token that it chose, and x_2, x_3, ... the proposals:

        s_0 = rms_norm(h) P
        z = rms_norm(s_{i-1} A + E[x_i]) * g
        s_i = z + gelu(z U) D
        x_{i+1} ~ softmax(s_i O + b)

    Args:
        tokens: int32 `(M,)`, ascending: the tokens that it knows.
        input_projection: float `(D, W)`: P.
        recurrent: float `(W, W)`: A.
        embeddings: float `(M + 1, W)`: E; the first row is that of all other tokens.
        scale: float `(W,)`: g.
        expansion, contraction: float `(W, F)` and `(F, W)`: U and D.
        output_projection, bias: float `(W, M)` and `(M,)`: O and b.

    Raises:
        ValueError: the shapes do not fit one another, or the tokens are not ascending.

    Notes:
        `training.DraftHeadTrainer` trains one with `fit`. It imports neither Keras nor a runtime, and serves a model in
        Keras and its files alike; one trained on a model serves its quantized files too.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.generation import Speculative
    >>> shapes = ((8, 4), (4, 4), (4, 4), (4,), (4, 6), (6, 4), (4, 3), (3,))
    >>> head = DraftHead(np.array([2, 5, 7]), *(np.zeros(shape, "float32") for shape in shapes))
    >>> head.num_tokens, Speculative(head, num_draft_tokens=3).num_draft_tokens
    (3, 3)

    Reference: Wertheimer et al., Accelerating Production LLMs with Combined Token/Embedding Speculators, arXiv 2404.19124,
    section 3. Deviations: the same weights for all proposals, a feed-forward in each step, and a part of the vocabulary.
    """

    tokens: np.ndarray
    input_projection: np.ndarray
    recurrent: np.ndarray
    embeddings: np.ndarray
    scale: np.ndarray
    expansion: np.ndarray
    contraction: np.ndarray
    output_projection: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        arrays = {field.name: np.asarray(getattr(self, field.name)) for field in dataclasses.fields(self)}
        for name, array in arrays.items():
            object.__setattr__(self, name, array.astype("int32" if name == "tokens" else "float32"))
        (hidden, width), inner, count = self.input_projection.shape, self.expansion.shape[-1], len(self.tokens)
        expected = {"tokens": (count,), **weight_shapes(count, hidden, width, inner)}
        for name, shape in expected.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} must have the shape {shape}. Received: {arrays[name].shape}")
        if count == 0 or np.any(np.diff(self.tokens) <= 0) or self.tokens[0] < 0:
            raise ValueError("tokens must be token ids in ascending order, each once.")

    @property
    def num_tokens(self) -> int:
        """int: number of tokens that it knows."""
        return len(self.tokens)

    def save(self, path: Path) -> None:
        """Writes the head to a `.safetensors` file, in half precision."""
        from safetensors.numpy import save_file

        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        save_file({name: each if name == "tokens" else each.astype("float16") for name, each in arrays.items()}, path)

    @classmethod
    def load(cls, path: Path) -> DraftHead:
        """Reads a head that `save` wrote.

        Raises:
            ValueError: the file holds other arrays.
        """
        from safetensors.numpy import load_file

        arrays = load_file(pathlib.Path(path))
        names = {field.name for field in dataclasses.fields(cls)}
        if arrays.keys() != names:
            raise ValueError(f"{path} is not a draft head: it must hold {sorted(names)}. Received: {sorted(arrays)}")
        return cls(**arrays)

    def check(self, target: GenerationSpec, requests: list[DecodingRequest]) -> None:
        """Raises `GenerationError` if a token of the head is not in the vocabulary of the target model."""
        del requests
        if self.tokens[-1] >= target.vocabulary_size:
            raise GenerationError(
                f"The draft head knows the token {self.tokens[-1]}; the model has a vocabulary of "
                f"{target.vocabulary_size} tokens."
            )

    def of_request(self, request: DecodingRequest, sampler: TokenSampler) -> HeadDraft:
        """The draft of one request."""
        return HeadDraft(self, sampler, request)

    def begin(self, hidden_states: np.ndarray) -> np.ndarray:
        """The state s_0 `(B, W)` of hidden states `(B, D)`."""
        return _product(_rms_norm(hidden_states), self.input_projection)

    def step(self, state: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads a token of each row: the logits `(B, M)` of the next one, and the next state."""
        z = _rms_norm(_product(state, self.recurrent) + self.embeddings[self._rows(tokens)]) * self.scale
        state = z + _product(_gelu(_product(z, self.expansion)), self.contraction)
        return _product(state, self.output_projection) + self.bias, state

    def _rows(self, tokens: np.ndarray) -> np.ndarray:
        """Rows of `embeddings`."""
        found = np.minimum(np.searchsorted(self.tokens, tokens), len(self.tokens) - 1)
        return np.where(self.tokens[found] == tokens, found + 1, 0)


def weight_shapes(count: int, hidden_dim: int, width: int, inner_dim: int) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the weights of a `DraftHead` that knows `count` tokens, by name."""
    return {
        "input_projection": (hidden_dim, width),
        "recurrent": (width, width),
        "embeddings": (count + 1, width),
        "scale": (width,),
        "expansion": (width, inner_dim),
        "contraction": (inner_dim, width),
        "output_projection": (width, count),
        "bias": (count,),
    }


class HeadDraft(Draft):
    """A draft head with the hidden state of each row; has the `propose` of `draft_model.DraftModel`.

    Args:
        head: `DraftHead`.
        sampler: `protocols.TokenSampler`.
        request: `DecodingRequest`.
    """

    reads_states = True

    def __init__(self, head: DraftHead, sampler: TokenSampler, request: DecodingRequest) -> None:
        self._head, self._sampler, self._request = head, sampler, request
        self._hidden_states = np.zeros((len(request.prompts), len(head.input_projection)), "float32")
        self._vocabulary_size = 0

    def observe(self, hidden_states: np.ndarray, vocabulary_size: int) -> None:
        """Takes the hidden state `(B, D)` from which the target model has chosen the last token of each sequence.

        Raises:
            GenerationError: the head is one of a model of another width.
        """
        if hidden_states.shape != self._hidden_states.shape:
            raise GenerationError(
                f"The draft head reads hidden states of {self._hidden_states.shape[1]} numbers; the model has "
                f"{hidden_states.shape[1]}."
            )
        self._hidden_states, self._vocabulary_size = hidden_states.astype("float32"), vocabulary_size

    def propose(self, sequences: Sequence[Sequence[int]], count: int, uniforms: Tensor) -> Proposals:
        """Samples `count` tokens after each sequence; see `draft_model.DraftModel.propose`."""
        drafted = DraftedTexts(sequences, self._sampler, self._request)
        state = self._head.begin(self._hidden_states)
        for step in range(count):
            known, state = self._head.step(state, np.array([each[-1] for each in drafted.texts]))
            drafted.add(self._whole(known), uniforms[:, step])
        return drafted.proposals()

    def _whole(self, known: np.ndarray) -> np.ndarray:
        """Logits `(B, V)` of all tokens."""
        logits = np.full((len(known), self._vocabulary_size), _UNKNOWN, "float32")
        logits[:, self._head.tokens] = known
        return logits


def _product(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """`x @ matrix` in this thread: the threads of `matmul` would compete with those of a runtime, which wait busily."""
    return np.einsum("bw,wm->bm", x, matrix)


def _rms_norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + EPSILON)


def _gelu(x: np.ndarray) -> np.ndarray:
    """The approximation with tanh."""
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))
