"""Fixtures of the contract tests."""

import pytest

import cases


@pytest.fixture(params=sorted(cases.ALL))
def case(request):
    return cases.ALL[request.param]


@pytest.fixture(params=sorted(cases.MIXERS))
def mixer_case(request):
    return cases.MIXERS[request.param]
