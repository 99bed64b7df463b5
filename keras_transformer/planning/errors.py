"""Errors of planning."""


class PlanningError(ValueError):
    """A model or a device that cannot be planned for.

    Example:

    >>> from keras_transformer.planning import build
    >>> build("lama:3-8B")
    Traceback (most recent call last):
    keras_transformer.planning.errors.PlanningError: unknown model 'lama'; did you mean 'llama'?
    """


class UnknownCostError(ValueError):
    """A cost that depends on the values that the graph is fed, as the trip count of some loops does."""
