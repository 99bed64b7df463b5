"""Calls of served models: by name, within the time limit, and again when a replica dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import ExportError
from keras_transformer.export.serving.metrics import Metrics
from keras_transformer.export.serving.requests import MODEL_NOT_FOUND, Limits, RequestError
from keras_transformer.export.serving.served_model import ReplicaDiedError, ServedModel

if TYPE_CHECKING:
    import numpy as np


class Calls:
    """The models of one application.

    Args:
        models: list of `ServedModel`.
        limits: `Limits`.
        retries: int >= 0: how often a request is retried when its replica dies.

    Attributes:
        models: dict of name to `ServedModel`.
        metrics: `Metrics`.

    Raises:
        ExportError: no model, or two of one name.
    """

    def __init__(self, models: Sequence[ServedModel], limits: Limits, retries: int) -> None:
        self.models = {each.name: each for each in models}
        if not models or len(self.models) < len(models):
            raise ExportError(
                f"models need different names: {', '.join(each.name for each in models) or 'there is none'}"
            )
        self.limits, self.retries = limits, retries
        self.metrics = Metrics()

    @property
    def only_name(self) -> str:
        """The name of the model if there is one, otherwise ""."""
        return next(iter(self.models)) if len(self.models) == 1 else ""

    def model(self, name: str | None) -> ServedModel:
        """Returns the model of a name; None is allowed where there is one model only.

        Raises:
            RequestError: 404 for an unknown name, 400 for none.
        """
        if name is None and not self.only_name:
            raise RequestError(400, f"'model' is missing; there is {', '.join(self.models)}")
        found = self.models.get(self.only_name if name is None else name)
        if found is None:
            known = ", ".join(f"'{each}'" for each in self.models)
            raise RequestError(404, f"there is no model '{name:.80}'; there is {known}", MODEL_NOT_FOUND)
        return found

    async def predict(self, model: ServedModel, signature: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature for checked arrays.

        Raises:
            RequestError: the values cannot be computed, or all slots are taken.
            ReplicaDiedError: every replica died.
            TimeoutError: no response in time.
        """
        async with asyncio.timeout(self.limits.timeout_s):
            outputs, examples = await self.retried(model, lambda: model.replicas.predict(signature, arrays))
        self.metrics.computed(model.name, examples)
        return outputs

    async def retried(self, model: ServedModel, call: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a call, which is repeated when a replica dies."""
        for attempt in range(self.retries + 1):
            try:
                return await call()
            except ReplicaDiedError:
                if attempt == self.retries:
                    raise
                await self.pause(model, attempt)

    async def pause(self, model: ServedModel, attempt: int) -> None:
        """Counts a retry and waits before it."""
        self.metrics.retried(model.name)
        await asyncio.sleep(min(0.05 * 2**attempt, 1.0))
