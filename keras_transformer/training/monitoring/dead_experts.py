"""Finding experts of a mixture that get hardly any tokens."""

from __future__ import annotations

import warnings

import keras
import numpy as np

from keras_transformer.attention.arguments import positive
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.feedforward import MixtureOfExperts
from keras_transformer.training.monitoring.names import path_in
from keras_transformer.utils.types import Logs


class DeadExperts(keras.callbacks.Callback):
    """Callback that warns of experts that get hardly any tokens for a while: a router that has collapsed.

    Args:
        every: int >= 1. Number of steps over which the tokens of each expert are counted. Default 100.
        least: float in (0, 1). Share of the tokens, relative to a uniform load, below which an expert is unused. Default
            0.1: with 8 experts, 1/80 of the assignments.
        patience: int >= 1. Number of counts in a row in which an expert must be unused. Default 3.

    Raises:
        ValueError: an argument out of its range; or, when `fit` begins, a model without `MixtureOfExperts`.

    Attributes:
        shares: dict of the path of each `MixtureOfExperts` to a list of float arrays `(E,)`, one for each count: the share
            of the assignments of each expert. They sum to 1.
        dead: dict of the path to the list of experts that are unused now.

    Each expert is warned of once, and again if it was used in between. Remedies are a larger `load_balancing_weight` or
    `jitter` of the `TopKRouter`, and a lower learning rate in the first steps. For the load of whole epochs see
    `plots.expert_load`.

    Example:

    >>> from keras_transformer.feedforward import TopKRouter
    >>> mixture = MixtureOfExperts(4, router=TopKRouter(2, top_k=1), name="mixture")
    >>> model = keras.Sequential([keras.Input((3, 4)), mixture])
    >>> model.compile("sgd", "mse")
    >>> experts = DeadExperts(every=2)
    >>> x = np.ones((8, 3, 4))
    >>> _ = model.fit(x, x, batch_size=2, verbose=0, callbacks=[experts])
    >>> len(experts.shares["mixture"]), float(experts.shares["mixture"][0].sum())
    (2, 1.0)
    """

    def __init__(self, every: int = 100, least: float = 0.1, patience: int = 3) -> None:
        super().__init__()
        if not 0 < least < 1:
            raise ValueError(f"least must be in (0, 1). Received: {least}")
        self.every = positive("every", every)
        self.least = least
        self.patience = positive("patience", patience)
        self.shares: dict[str, list[np.ndarray]] = {}
        self.dead: dict[str, list[int]] = {}
        self._mixtures: dict[str, _Counts] = {}
        self._steps = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        mixtures = [layer for layer in layers_in_order(self.model) if isinstance(layer, MixtureOfExperts)]
        if not mixtures:
            raise ValueError("DeadExperts found no experts: the model has no MixtureOfExperts.")
        self._mixtures = {path_in(layer, self.model): _Counts(layer) for layer in mixtures}
        self.shares = {path: [] for path in self._mixtures}
        self.dead = {path: [] for path in self._mixtures}
        self._steps = 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        for counts in self._mixtures.values():
            counts.seen[:] = 0  # Keras has reset the counters.

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._steps += 1
        if self._steps % self.every:
            return
        _ = self.model  # On JAX this moves the counters of the training into the model.
        for path, counts in self._mixtures.items():
            counts.add(counts.now())
            self._judge(path, counts)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        for counts in self._mixtures.values():  # Those of the logs: validation has reset the counters.
            counts.add(np.array([int((logs or {}).get(name, 0)) for name in counts.names]))

    def _judge(self, path, counts):
        total = counts.pending.sum()
        if not total:
            return
        shares = counts.pending / total
        self.shares[path].append(shares)
        counts.unused = np.where(shares * len(shares) < self.least, counts.unused + 1, 0)
        counts.pending[:] = 0
        dead = np.flatnonzero(counts.unused >= self.patience).tolist()
        new = [expert for expert in dead if expert not in self.dead[path]]
        self.dead[path] = dead
        if new:
            names = f"expert{'s' if len(new) > 1 else ''} {', '.join(map(str, new))}"
            warnings.warn(
                f"Step {self._steps}: {names} of '{path}' got less than {self.least / len(shares):.2%} of the tokens in "
                f"{self.patience} counts of {self.every} steps in a row; a uniform load is {1 / len(shares):.2%}.",
                stacklevel=2,
            )


class _Counts:
    """The assignments of the experts of a layer since the last count."""

    def __init__(self, layer: MixtureOfExperts) -> None:
        self.variable = next(each for each in layer.non_trainable_weights if each.name == "loads")
        experts = layer.router.num_experts
        self.names = [f"{layer.counts.name}/load_{expert}" for expert in range(experts)]
        self.seen, self.pending, self.unused = np.zeros((3, experts), "int64")

    def now(self) -> np.ndarray:
        """The assignments of each expert since the start of the epoch."""
        return np.asarray(keras.ops.convert_to_numpy(self.variable), "int64")

    def add(self, loads: np.ndarray) -> None:
        """Adds what came since the last call, of the assignments since the start of the epoch."""
        self.pending += loads - self.seen
        self.seen = loads
