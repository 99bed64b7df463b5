"""Each explanation of a weight accepts what a converter makes of it, and refuses a fault that no other one would refuse."""

import contextlib
import dataclasses

import numpy as np
import pytest

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.errors import WeightError
from keras_transformer.export.verification.weights import comparison, explanations
from keras_transformer.export.verification.weights.comparison import WeightComparison
from keras_transformer.export.verification.weights.model_weights import ModelWeights

RANDOM = np.random.default_rng(0)
KERNEL, TABLE = (RANDOM.normal(size=shape).astype("float32") for shape in ((8, 8), (16, 4)))
SCALE, BIAS, GAMMA = (RANDOM.normal(size=size).astype("float32") for size in (8, 48, 48))


@dataclasses.dataclass
class Signature:
    """A double of `TracedConstants`: the numbers of a graph, and what it computes, by the variables it follows from."""

    scalars: frozenset = frozenset()
    computed: tuple = ()
    computed_with: frozenset = frozenset()
    readers: dict = dataclasses.field(default_factory=dict)

    def values(self, sizes):
        return ((names, array) for names, array in self.computed if array.size in sizes)


@dataclasses.dataclass
class Case:
    """What a file has in the place of some variables.

    Args:
        variables: dict of name to array.
        stored: the array of a sound file.
        faults: faulty arrays.
        record: of the sound file: how many variables are equal, and which are computed.
        signature: `Signature` of the model.
        is_named: whether the fault is refused by the name of a variable; otherwise it is not accounted for.
    """

    variables: dict
    stored: np.ndarray
    faults: tuple
    record: tuple = (1, [])
    signature: Signature = dataclasses.field(default_factory=Signature)
    is_named: bool = True


def next_up(array, index=5):
    """The array with one element that is one unit in the last place larger."""
    changed = array.copy()
    changed.reshape(-1)[index] = np.nextafter(changed.reshape(-1)[index], np.float32(99))
    return changed


def moved(array, distance, index=5):
    """The array with one element that is further away."""
    changed = array.copy()
    changed.reshape(-1)[index] += np.float32(distance)
    return changed


def negated(array, index=5):
    changed = array.copy()
    changed.reshape(-1)[index] *= -1
    return changed


def chosen(array):
    """A vector in some rows of a table, and zeros in the others, as a converter writes `where(condition, vector, 0)`."""
    return np.where((np.arange(12) % 3 == 1)[:, None], array, np.float32(0)).reshape(1, 4, 3, -1)


def with_gates(array, order):
    """A weight of an LSTM with its gates, those of Keras by number, in another order."""
    gates = np.split(array, 4, axis=-1)
    return np.concatenate([gates[number] for number in order], axis=-1)


UNIT = np.spacing(np.exp(KERNEL).max())
EXP = Signature(computed=(({"kernel"}, np.exp(KERNEL)),))
PICTURES = RANDOM.normal(size=(3, 3, 4, 8)).astype("float32")
SPREAD = RANDOM.uniform(1, 9, 4).astype("float32")
BOTH = np.moveaxis(PICTURES * np.float32(0.3) / SPREAD[:, None] * SCALE, -1, 0).copy()
GATES = RANDOM.normal(size=(6, 48)).astype("float32")
OTHER = RANDOM.normal(size=8).astype("float32")
CARRIED = np.float32(0.3) * (SCALE @ KERNEL + OTHER)
TWICE = KERNEL * np.float32(0.3) * np.float32(7)
CASES = {
    "same": Case({"kernel": KERNEL}, KERNEL.T, (next_up(KERNEL.T.copy()), KERNEL.T[::-1])),
    "copies": Case({"kernel": KERNEL, "copy": KERNEL}, KERNEL, ({"copy": next_up(KERNEL)},), (2, [])),
    "one_row": Case({"bias": BIAS}, chosen(BIAS), (next_up(chosen(BIAS), 4 * 48 + 7),), is_named=False),
    "rows": Case(
        {"table": TABLE}, TABLE[3:12], (negated(TABLE[3:12]), TABLE[[3, *range(5, 13)]]), (0, ["table"]), is_named=False
    ),
    "factor": Case(
        {"kernel": KERNEL},
        KERNEL * np.float32(0.3),
        (next_up(KERNEL * np.float32(0.3)), KERNEL * np.float32(0.3001)),
        signature=Signature(frozenset([0.3])),
    ),
    "two_factors": Case(
        {"kernel": KERNEL},
        TWICE,
        (TWICE * np.float32(1.00001), moved(TWICE, 1e-5 * TWICE.reshape(-1)[5])),
        (0, ["kernel"]),
        Signature(frozenset([0.3, 7.0])),
    ),
    "channels": Case(
        {"kernel": KERNEL, "scale": SCALE},
        KERNEL * SCALE,
        (next_up(KERNEL * SCALE), KERNEL * SCALE[::-1]),
        (2, []),
        is_named=False,
    ),
    "two_channels": Case(
        {"kernel": PICTURES, "scale": SCALE, "spread": SPREAD},
        BOTH,
        (moved(BOTH, 1e-5 * BOTH.reshape(-1)[5]), BOTH[::-1], BOTH[..., ::-1], BOTH * np.float32(1.00001)),
        (0, ["kernel", "scale", "spread"]),
        Signature(frozenset([0.3])),
        is_named=False,
    ),
    "product_of_vectors": Case(
        {"bias": BIAS, "gamma": GAMMA}, BIAS * GAMMA, (next_up(BIAS * GAMMA, 40),), (2, []), is_named=False
    ),
    "recurrent_weight": Case(
        {"kernel": GATES},
        with_gates(GATES, (0, 3, 1, 2)).T[None],
        (next_up(with_gates(GATES, (0, 3, 1, 2)).T.copy()), with_gates(GATES, (0, 1, 3, 2)).T),
    ),
    "constant": Case(
        {"kernel": KERNEL},
        moved(np.exp(KERNEL), 4 * UNIT, np.exp(KERNEL).argmax()),
        (moved(np.exp(KERNEL), 16 * UNIT, np.exp(KERNEL).argmin()),),
        (0, ["kernel"]),
        EXP,
        is_named=False,
    ),
    "carried_bias": Case(
        {"kernel": KERNEL, "former": SCALE, "bias": OTHER},
        CARRIED,
        (moved(CARRIED, 1e-5), CARRIED - np.float32(0.3) * OTHER, CARRIED * np.float32(1.00001), CARRIED[::-1]),
        (0, ["bias", "former", "kernel"]),
        Signature(frozenset([0.3])),
    ),
}


def record(case, stored, variables=None):
    variables = case.variables | (variables or {})
    check = WeightComparison("tflite", variables, variables, [case.signature])
    check.add(StoredWeight("array", np.ascontiguousarray(stored)))
    found = check.finish()
    return found["equal"], found["computed"], found["unaccounted"]


def without(monkeypatch, name):
    """The comparison without one explanation."""
    nothing = {"same": lambda *_: None, "one_row": lambda *_: None, "copies": lambda *_: iter(())}
    if name in nothing:
        monkeypatch.setattr(comparison, name, nothing[name])
    else:
        kept = tuple(each for each in explanations.EXPLANATIONS if each.find.__name__ != name)
        monkeypatch.setattr(comparison, "EXPLANATIONS", kept)


def test_every_explanation_has_a_case():
    assert list(CASES) == ["same", "copies", "one_row", *(each.find.__name__ for each in explanations.EXPLANATIONS)]


@pytest.mark.parametrize("name", CASES)
def test_what_a_converter_makes_of_a_weight_is_accepted(name):
    case = CASES[name]
    assert record(case, case.stored) == (*case.record, [])


@pytest.mark.parametrize("name", CASES)
def test_no_other_explanation_accepts_it(monkeypatch, name):
    case = CASES[name]
    without(monkeypatch, name)
    with contextlib.suppress(WeightError):
        assert record(case, case.stored)[2]


@pytest.mark.parametrize(
    ("name", "fault"), [(name, number) for name, case in CASES.items() for number in range(len(case.faults))]
)
def test_a_planted_fault_is_refused(name, fault):
    case = CASES[name]
    planted = case.faults[fault]
    stored, variables = (case.stored, planted) if isinstance(planted, dict) else (planted, None)
    if case.is_named:
        with pytest.raises(WeightError) as caught:
            record(case, stored, variables)
        assert caught.value.weight in case.variables
    else:
        assert record(case, stored, variables)[2] == [*case.variables, "array"]


@pytest.mark.parametrize(("order", "equal"), [((0, 3, 1, 2), 1), ((0, 1, 2, 3), 1), ((3, 0, 1, 2), 0)])
def test_a_bias_has_zeros_behind_it(order, equal):
    stored = np.concatenate([with_gates(BIAS, order), np.zeros(48, "float32")])
    assert record(Case({"bias": BIAS}, stored, ()), stored)[0] == equal


def test_a_constant_that_is_its_own_variable_must_be_equal_bit_for_bit():
    signature = Signature(computed=(({"kernel"}, KERNEL),))
    case = Case({"kernel": KERNEL}, KERNEL, (), signature=signature)
    assert record(case, KERNEL) == (1, [], [])
    with pytest.raises(WeightError, match=r"differs from the model at \[0, 5\]: 98.438% of its numbers are equal"):
        record(case, next_up(KERNEL))


def test_the_operations_that_read_an_array_choose_among_variables_of_one_size():
    variables = {"query": KERNEL, "key": KERNEL.T.copy()}
    model = ModelWeights(variables, [Signature(readers={"query": {"first"}, "key": {"second"}})])
    assert explanations.same(StoredWeight("array", KERNEL, readers=frozenset(["second"])), model) == "key"
    assert explanations.same(StoredWeight("array", KERNEL, readers=frozenset(["first"])), model) == "query"


def test_a_weight_that_a_number_divides_is_multiplied_by_the_rounded_reciprocal():
    case = Case({"kernel": KERNEL}, KERNEL, (), signature=Signature(frozenset([255.0])))
    divided = KERNEL * np.float32(1 / 255)
    assert record(case, divided)[0] == 1
    for fault in (next_up(divided.copy()), KERNEL * np.float32(1 / 256), KERNEL * np.float32(1 / 254)):
        with pytest.raises(WeightError):
            record(case, fault)
