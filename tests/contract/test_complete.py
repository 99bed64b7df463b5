"""Completeness: every entry of the library's dicts has a case."""

import inspect

import model_cases
import pytest

import cases
from keras_transformer import attention, blocks, feedforward, generation, models, positions, recurrence, tasks

DICTS = {
    "MECHANISMS": (attention.MECHANISMS, cases.MECHANISMS),
    "MIXERS": (attention.MIXERS, cases.MIXER_LAYERS),
    "SCORINGS": (attention.SCORINGS, cases.SCORINGS),
    "ATTENTION_POSITIONS": (positions.ATTENTION_POSITIONS, cases.ATTENTION_POSITIONS),
    "EMBEDDING_POSITIONS": (positions.EMBEDDING_POSITIONS, cases.EMBEDDING_POSITIONS),
    "FEEDFORWARDS": (feedforward.FEEDFORWARDS, cases.FEEDFORWARDS),
    "RECURRENCES": (recurrence.RECURRENCES, cases.RECURRENCES),
    "RESIDUALS": (blocks.RESIDUALS, cases.RESIDUALS),
}


@pytest.mark.parametrize("name", DICTS)
def test_every_variant_has_a_case_of_its_class(name):
    variants, named_cases = DICTS[name]
    assert {key: case.cls for key, case in named_cases.items()} == variants


@pytest.mark.parametrize(
    "choices, named_cases",
    [
        (models.MODELS, model_cases.MODELS),
        (tasks.TASKS, model_cases.TASKS),
        (generation.SAMPLERS, model_cases.SAMPLERS),
    ],
    ids=["MODELS", "TASKS", "SAMPLERS"],
)
def test_every_model_task_and_sampler_has_a_case(choices, named_cases):
    assert set(named_cases) == set(choices)


def test_every_constructor_argument_has_a_non_default_value(case):
    parameters = inspect.signature(case.cls).parameters.values()
    optional = {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD and p.default is not p.empty}
    named = {name for name in optional if name not in case.required()}
    if case.cls.__name__ in ("GatedFeedForward",):  # Passes `**kwargs` to its base.
        named |= {"kernel_initializer", "seed"}
    missing = named - set(case.arguments) - {"cross_attention"}
    assert not missing, f"{case.cls.__name__}: no value in cases.py for {sorted(missing)}"
    same = [name for name, value in case.arguments.items() if name in optional and value is optional[name]]
    assert not same, f"{case.cls.__name__}: default values in cases.py for {same}"
