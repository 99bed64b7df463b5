"""The cost of a mixture of experts is that of the selected experts; counted in traced graphs, not timed."""

import keras
import pytest

from keras_transformer.feedforward import GatedFeedForward, MixtureOfExperts, TopKRouter

on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow graphs")
WIDTH, HIDDEN, LENGTH = 32, 64, 2048


def cost(layer, length=LENGTH, **options):
    from graph_cost import traced_cost

    layer.build((1, length, WIDTH))
    return traced_cost(lambda x: layer(x, **options), (1, length, WIDTH))


def mixture(num_experts, top_k, **options):
    return MixtureOfExperts(HIDDEN, router=TopKRouter(num_experts, top_k=top_k, **options))


@on_tensorflow
@pytest.mark.parametrize("num_experts, top_k", [(4, 1), (16, 1), (16, 2)])
@pytest.mark.parametrize("training", [False, True])
def test_a_token_costs_its_experts_and_a_quarter(num_experts, top_k, training):
    alone = cost(GatedFeedForward(HIDDEN)).flops
    capacity = {"capacity_factor": 1.25} if training else {}
    flops = cost(mixture(num_experts, top_k, **capacity), training=training).flops
    assert top_k * alone <= flops <= (1.25 * top_k + 0.01 * num_experts + 0.1) * alone


@on_tensorflow
@pytest.mark.parametrize("training", [False, True])
def test_no_tensor_of_tokens_by_experts_by_slots(training):
    capacity = {"capacity_factor": 1.0} if training else {}
    sizes = [cost(mixture(16, 2, **capacity), length, training=training) for length in (LENGTH, 2 * LENGTH)]
    assert sizes[1].largest <= 2.1 * sizes[0].largest
    assert sizes[1].largest <= 1.3 * 2 * 2 * LENGTH * HIDDEN
    assert sizes[1].flops <= 2.1 * sizes[0].flops
