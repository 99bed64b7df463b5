"""What the devices of a training exchange in a step, counted in its compiled program."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import DistributionError
from keras_transformer.utils.types import Tensors

_OPERATION = re.compile(
    r" = (?P<result>.*?) (?P<name>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?P<start>-start)?\("
)
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_IOTA_GROUPS = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_LISTED_GROUPS = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_MESH_GROUPS = re.compile(r"replica_groups=mesh\[(.*?)\].*? \{(.*?)\}")


class Collective(NamedTuple):
    """A collective operation of a compiled step.

    Attributes:
        name: str: "all-reduce", "all-gather", "reduce-scatter", "all-to-all" or "collective-permute".
        size: int: the bytes of its tensors: for "all-gather" and "reduce-scatter" of the whole ones, otherwise of the part
            of one device.
        devices: int: how many devices take part together. 2 for "collective-permute".

    Example: eight devices sum 1,000 bytes.

    >>> Collective("all-reduce", 1000, 8).sent
    1750.0
    """

    name: str
    size: int
    devices: int

    @property
    def sent(self) -> float:
        """float: the bytes that each device sends, with the ring algorithms."""
        if self.name == "collective-permute":
            return float(self.size)
        rounds = 2 if self.name == "all-reduce" else 1
        return rounds * (self.devices - 1) / self.devices * self.size


def communication(
    model: keras.Model, x: Tensors, y: Tensors | None = None, sample_weight: Tensors | None = None
) -> list[Collective]:
    """Compiles a training step and returns its collective operations: what devices exchange, in bytes.

    Nothing is trained, and no variable changes. Compilers choose different operations for other devices: for CPUs XLA sums
    the gradients of fully sharded weights by "all-reduce".

    Args:
        model: a compiled `keras.Model`, of `training.distributed` on JAX.
        x, y, sample_weight: a batch, as `fit` takes them.

    Returns:
        list of `Collective`, in the order of the program. One in a loop is in the list once, however often it runs.

    Raises:
        DistributionError: another backend than JAX.

    Example: the bytes that each device sends per step.

    >>> def sent(model, x, y):
    ...     return sum(collective.sent for collective in communication(model, x, y))
    """
    if keras.backend.backend() != "jax":
        raise DistributionError(f"Collectives are counted on JAX. The backend is {keras.backend.backend()}.")
    import jax

    batch = tuple(part for part in (x, y, sample_weight) if part is not None)
    keras_private.symbolic_build(model, batch)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in variables] for variables in groups)
    distribution, shardings = keras.distribution.distribution(), None
    if distribution is not None:
        shardings = (None, jax.tree.map(lambda value: value.sharding, state))
        batch = jax.tree.map(lambda array: _on_devices(array, distribution), batch)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    return collectives(step.lower(state, batch).compile().as_text() or "")


def collectives(program: str) -> list[Collective]:
    """Returns the collective operations in the text of a compiled program of XLA (HLO).

    Example:

    >>> collectives("%sums = (f32[16,4]{1,0}, f32[]) all-reduce(%x, %y), replica_groups=[1,8]<=[8], to_apply=%add")
    [Collective(name='all-reduce', size=260, devices=8)]
    """
    found, computation = [], ""
    for line in program.splitlines():
        computation = line if line.startswith("%") else computation
        match = _OPERATION.search(line)
        if match is None:
            continue
        name, size = match["name"], sum(map(_bytes, _ARRAY.finditer(match["result"])))
        devices = 2 if name == "collective-permute" else _group_size(line)
        if match["start"] and name != "all-reduce":  # Its result has the operands too.
            size = {"all-gather": devices * size // (devices + 1), "reduce-scatter": size // (devices + 1)}.get(
                name, size // 2
            )
        if name == "reduce-scatter":
            size *= devices
        elif name == "all-reduce" and computation.startswith("%all-reduce-scatter"):  # What TPUs have instead.
            name = "reduce-scatter"
        found.append(Collective(name, size, devices))
    return found


def _bytes(array):
    bits, shape = array.groups()
    return math.ceil(int(bits or 8) / 8) * math.prod(map(int, filter(None, shape.split(","))))


def _group_size(line):
    """How many devices are in a group, of the three notations of groups."""
    if match := _IOTA_GROUPS.search(line):
        return int(match[1])
    if match := _LISTED_GROUPS.search(line):
        return len(match[1].split(","))
    if match := _MESH_GROUPS.search(line):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", match[1])}
        # An axis, or a part of one such as 'a':(2)4, which has 4 devices.
        axes = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", match[2])
        return math.prod(int(part) if part else sizes[name] for name, part in axes)
    raise DistributionError(f"The groups of devices cannot be read: {line.strip()[:200]}")


def _on_devices(array, distribution):
    array = keras.ops.convert_to_tensor(array)
    return keras.distribution.distribute_tensor(array, distribution.get_data_layout(array.shape))
