"""The error of planning."""


class PlanningError(ValueError):
    """A model or a device that cannot be planned for."""
