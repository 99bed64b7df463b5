"""Samplers by name."""

from __future__ import annotations

from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.protocols import Sampler
from keras_transformer.generation.samplers import Greedy, Random
from keras_transformer.generation.search.beam import BeamSearch
from keras_transformer.generation.search.contrastive import Contrastive
from keras_transformer.generation.search.tree_search import TreeSearch

SAMPLERS: dict[str, type[Sampler]] = {
    "greedy": Greedy,
    "random": Random,
    "beam": BeamSearch,
    "contrastive": Contrastive,
    "tree_search": TreeSearch,
}


def resolve_sampler(sampler: str | Sampler) -> Sampler:
    """Returns a sampler from its name or an instance.

    Raises:
        GenerationError: unknown name (the message lists the valid ones), or not a sampler.
    """
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            raise GenerationError(f"Unknown sampler {sampler!r}. Valid names: {', '.join(SAMPLERS)}")
        return SAMPLERS[sampler]()
    if not isinstance(sampler, Sampler):
        raise GenerationError(f"Expected a sampler or one of {', '.join(SAMPLERS)}. Received: {sampler!r}")
    return sampler
