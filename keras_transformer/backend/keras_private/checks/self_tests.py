"""What the self-tests share: how they are collected, what they expect, and small models."""

from __future__ import annotations

from collections.abc import Callable

import keras


class SelfTests(dict[str, Callable[[], None]]):
    """Dict of the name of a private attribute to the function that tests it."""

    def of(self, attribute: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Returns a decorator that adds the test of an attribute."""

        def add(test: Callable[[], None]) -> Callable[[], None]:
            self[attribute] = test
            return test

        return add


def expect(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def dense() -> keras.layers.Dense:
    layer = keras.layers.Dense(2, kernel_initializer="ones")
    layer.build((None, 3))
    return layer


def nested() -> keras.Sequential:
    inner = keras.Sequential([keras.layers.Dense(1, name="c")], name="b")
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="a"), inner], name="outer")
