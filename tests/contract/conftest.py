"""Fixtures of the contract tests."""

import pytest
from variants import slow_but

import cases

# One of each kind, and those that differ most from the others: what `pytest` runs. All are run before a change lands.
REPRESENTATIVES = (
    *(
        "attention-position-relative_bias",
        "attention-position-rotary",
        "embedding-position-sinusoidal",
        "feedforward-gated",
    ),
    *("layer-conformer_convolution", "layer-decoder_block", "layer-mix_feed_forward", "layer-patch_embedding"),
    *("layer-top_k_router", "mechanism-block_sparse", "mechanism-linear", "mechanism-local", "mechanism-lsh"),
    *("mechanism-softmax", "mixer-gated_attention_unit", "mixer-multi_head", "mixer-multi_head_latent"),
    *("recurrence-mamba2", "recurrence-retention", "residual-gated", "residual-pre", "scoring-additive"),
)


@pytest.fixture(params=slow_but(sorted(cases.ALL), *REPRESENTATIVES))
def case(request):
    return cases.ALL[request.param]


@pytest.fixture(params=slow_but(sorted(cases.MIXERS), *(each for each in REPRESENTATIVES if each in cases.MIXERS)))
def mixer_name(request):
    return request.param


@pytest.fixture
def mixer_case(mixer_name):
    return cases.MIXERS[mixer_name]
