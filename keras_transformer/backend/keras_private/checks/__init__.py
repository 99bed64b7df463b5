"""Self-tests of `keras_private`: what a new version of Keras breaks is named here first."""

import keras

from keras_transformer.backend.keras_private.checks import (
    graphs,
    layers,
    masks,
    optimizers,
    random,
    sums,
    training,
    variables,
)
from keras_transformer.utils.errors import library_exceptions

CHECKS = (
    layers.CHECKS
    | variables.CHECKS
    | masks.CHECKS
    | graphs.CHECKS
    | training.CHECKS
    | optimizers.CHECKS
    | random.CHECKS
    | sums.CHECKS
)


class KerasPrivateError(RuntimeError):
    """The installed version of Keras lacks a private attribute that this project needs, or uses it differently."""


def check() -> None:
    """Runs the self-test of every private attribute of Keras that this project uses.

    Raises:
        KerasPrivateError: some fail; the message names the version of Keras and each attribute.

    Example:

    >>> check()
    """
    broken = []
    for attribute, test in CHECKS.items():
        try:
            test()
        except library_exceptions(ImportError) as error:
            broken.append(f"{attribute} ({type(error).__name__}: {str(error)[:200]})")
    if broken:
        raise KerasPrivateError(f"Keras {keras.__version__} changed private attributes: {'; '.join(broken)}")
