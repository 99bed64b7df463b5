"""Memory of steps, by hand: what kernels compute again, what TensorFlow copies, and loops that run ahead."""

import keras
import pytest
import tensorflow as tf

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.planning import Device, PlanningError, plan
from keras_transformer.planning.graph.counting import Kernels, graph_events
from keras_transformer.planning.graph.memory import Liveness
from keras_transformer.planning.graph.pieces import Part
from keras_transformer.planning.graph.repeated_blocks import find_groups
from keras_transformer.planning.graph.step_graphs import training_graph
from keras_transformer.planning.graph.traces import Traces

SIZE = models.Size(8, 128, 4, 320)
GPU = Device(100.0, 16.0, 300.0, 32.0)
CPU = GPU._replace(fuses=False)
ROWS, LENGTH, WORDS = 2, 64, 4096


def language_model(policy="float32"):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        with unallocated():
            return tasks.LanguageModel(models.Llama(SIZE, WORDS, num_key_value_heads=2))
    finally:
        keras.config.set_dtype_policy(before)


def planned(device, model=None, **options):
    return plan(model or language_model(), device, **{"batch_size": ROWS, "length": LENGTH, **options})


def test_a_block_in_16_bits_keeps_no_copies_in_32_bits():
    model = language_model("bfloat16")
    traces = Traces(model, LENGTH, Kernels(scores=frozenset([LENGTH])), find_groups(model))
    _, kept = traces.pieces(ROWS).block.forward.peak()
    width, inner, keys = SIZE.hidden_dim, SIZE.intermediate_dim, SIZE.hidden_dim // 2
    # Both norms: input and output. Queries, keys, values, and what attention gives. The gate before and after its
    # activation, the hidden layer, and their product.
    numbers = 2 * 2 * width + 2 * width + 2 * keys + 4 * inner
    # Rotations and masks take 6 % of so small a block; copies of the norms would take 47 %.
    assert kept == pytest.approx(2 * ROWS * LENGTH * numbers, rel=0.07)


def test_one_of_two_inputs_of_the_right_size_is_written_over():
    @tf.function(autograph=False)
    def step(x):
        rows = tf.reduce_sum(x, axis=1, keepdims=True)  # 40 bytes, read by the product only, as is
        return rows * tf.matmul(x, x)  # this: 400, written over.

    graph = step.get_concrete_function(tf.TensorSpec((10, 10))).graph
    peak, _ = Liveness(graph.get_operations(), graph.outputs).run()
    assert peak == 40 + 400


def test_cross_entropies_write_over_the_logits():
    @tf.function(autograph=False)
    def step(x, labels):
        logits = tf.matmul(x, x)  # 400 bytes
        loss, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels)
        return loss, gradient

    graph = step.get_concrete_function(tf.TensorSpec((10, 10)), tf.TensorSpec((10,), "int32")).graph
    peak, _ = Liveness(graph.get_operations(), graph.outputs).run()
    assert peak == 400 + 40


def test_a_loop_writes_over_its_initial_value():
    @tf.function(autograph=False)
    def step(x):
        return tf.while_loop(lambda i, total: i < 3, lambda i, total: (i + 1, tf.matmul(total, x)), (0, tf.exp(x)))[1]

    graph = step.get_concrete_function(tf.TensorSpec((10, 10))).graph
    peak, _ = Liveness(graph.get_operations(), graph.outputs).run()
    # The sums of an iteration are allocated in the loop, which has no workspace here. The counter and its bounds are int32.
    assert 400 <= peak < 400 + 40


@pytest.mark.exhaustive
def test_weights_that_decay_first_are_copied_where_nothing_is_compiled():
    with_decay, without = (planned(CPU, optimizer=name) for name in ("adamw", "adam"))
    assert with_decay.training - without.training == with_decay.gradients
    assert planned(CPU, optimizer="fused_adamw").training == without.training  # They decay last.
    with_decay, without = (planned(GPU, optimizer=name) for name in ("adamw", "adam"))
    assert with_decay.training == without.training


def test_a_loss_in_chunks_keeps_the_logits_of_a_chunk():
    whole, chunked = (planned(GPU, batch_size=32, loss_chunk=chunk) for chunk in (None, 16))
    logits = 4 * 32 * LENGTH * WORDS
    assert whole.activations - chunked.activations > 0.9 * logits
    # The gradient of the head is computed in the loop: no product is repeated.
    assert chunked.flops == pytest.approx(whole.flops, rel=0.01)


@pytest.mark.exhaustive
def test_chunks_do_not_run_ahead():
    options = {"loss_chunk": 16, "optimizer": "adam"}
    compiled, plain = planned(CPU._replace(fuses=True), **options), planned(CPU, **options)
    # Eight chunks that ran at once would wait with seven gradients of the head.
    assert plain.training - compiled.training < 4 * WORDS * SIZE.hidden_dim


def test_iterations_that_run_ahead_are_counted():
    def peak(parallel):
        @tf.function(autograph=False)
        def step(x):
            def add(index, total):
                return index + 1, total + tf.matmul(x, x * tf.cast(index, "float32"))

            return tf.while_loop(lambda index, total: index < 8, add, (0, x), parallel_iterations=parallel)[1]

        graph = step.get_concrete_function(tf.TensorSpec((10, 10))).graph
        return Part.of(graph_events(graph, Kernels(fuses=False))).forward.peak()[0]

    assert peak(8) - peak(1) == 7 * 400


def test_a_loss_in_chunks_is_for_decoders_with_a_head():
    with unallocated():
        encoder = models.Encoder(SIZE, WORDS)
    with pytest.raises(PlanningError, match="'encoder' is none"):
        training_graph(encoder, ROWS, LENGTH, 16)
