"""The options of a plan, and their checks. Importing this loads neither Keras nor a backend."""

from __future__ import annotations

from keras_transformer.planning.errors import PlanningError
from keras_transformer.utils.choice import suggestion

# Values that an optimizer stores per weight.
OPTIMIZER_SLOTS = {"sgd": 0, "momentum": 1, "lion": 1, "adam": 2, "adamw": 2, "fused_adamw": 2}
# How often an update reads or writes a number for each weight where its operations are not fused, as TensorFlow runs them.
UNFUSED_PASSES = {"sgd": 5, "momentum": 11, "lion": 22, "adam": 30, "adamw": 37, "fused_adamw": 12}
# Optimizers that decay the weights before the gradients are known: TensorFlow copies them, as the step still reads them.
DECAYING = frozenset(["adamw"])
# Dtype policies of Keras that a plan can be made for.
DTYPES = ("float32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16")


def check_name(kind: str, name: str, valid: tuple[str, ...]) -> None:
    """Raises `PlanningError`, with the nearest valid name, for a name that is not one of them.

    Example:

    >>> check_name("optimizer", "adamm", tuple(OPTIMIZER_SLOTS))
    Traceback (most recent call last):
    keras_transformer.planning.errors.PlanningError: unknown optimizer 'adamm'; valid: sgd, momentum, lion, adam, adamw, \
fused_adamw; did you mean 'adam'?
    """
    if name not in valid:
        raise PlanningError(f"unknown {kind} {name!r}; valid: {', '.join(valid)}{suggestion(name, valid)}")


def check_sizes(
    batch_size: int,
    length: int,
    devices: int,
    model_parallel: int,
    efficiency: float | None,
    loss_chunk: int | None = None,
) -> None:
    """Raises `PlanningError` for sizes below 1, groups that do not divide the devices, or an efficiency outside (0, 1]."""
    sizes = {"batch_size": batch_size, "length": length, "devices": devices, "model_parallel": model_parallel}
    sizes |= {} if loss_chunk is None else {"loss_chunk": loss_chunk}
    for name, size in sizes.items():
        if size < 1:
            raise PlanningError(f"{name} must be at least 1: {size}")
    if devices % model_parallel:
        raise PlanningError(f"{devices} devices do not divide into groups of {model_parallel}")
    if efficiency is not None and not 0 < efficiency <= 1:
        raise PlanningError(f"efficiency must be in (0, 1]: {efficiency}")
