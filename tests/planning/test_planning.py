"""Plans: counted operations and bytes, by hand and by formulas, and the command that prints them."""

import functools
import inspect
import json
import math

import keras
import pytest
import tensorflow as tf

from keras_transformer import attention, models, recurrence, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.blocks.block import Block
from keras_transformer.export.commands import main as cli
from keras_transformer.planning import (
    DEVICES,
    DTYPES,
    OPTIMIZER_SLOTS,
    Device,
    Reached,
    UnknownCostError,
    build,
    get_device,
    plan,
)
from keras_transformer.planning.graph.events import Event, Events
from keras_transformer.planning.graph.memory import Liveness, size_of
from keras_transformer.planning.graph.pieces import divide
from keras_transformer.planning.graph.repeated_blocks import find_groups
from keras_transformer.planning.graph.subgraphs import Subgraphs, is_list
from keras_transformer.planning.graph.trip_counts import LOOPS
from keras_transformer.planning.names import model_names, size_names
from keras_transformer.planning.sharding import Sharding
from keras_transformer.planning.step_cost import training_step

SIZE = models.Size(2, 32, 4, 64)
WORDS, ROWS, LENGTH = 48, 3, 16
PLAIN = Device(1.0, 1.0, 1.0, 1.0, reached=Reached(0.5, 0.5, 1.0, 0.0))


def language_model(words=WORDS, **options):
    with unallocated():
        return tasks.LanguageModel(models.Decoder(SIZE, words, max_sequence_length=LENGTH, **options))


def planned(model=None, **options):
    return plan(model, PLAIN, **{"batch_size": ROWS, "length": LENGTH, **options}) if model else _planned(**options)


@functools.cache
def _planned(**options):
    return planned(language_model(), **options)


def test_lives_by_hand():
    @tf.function(autograph=False)
    def step(x):
        long = tf.matmul(x, x)  # 400 bytes, read again at the end
        short = tf.exp(tf.matmul(x, long))  # 400 more, written over by the exponential
        total = tf.reduce_sum(short, axis=1)  # 40
        return tf.matmul(long, tf.reshape(total, (10, 1)))  # 40, while `long` and `total` stand

    graph = step.get_concrete_function(tf.TensorSpec((10, 10))).graph
    peak, _ = Liveness(graph.get_operations(), graph.outputs).run()
    assert peak == 400 + 400 + 40


def test_transposed_matrices_are_read_crosswise_by_hand():
    @tf.function(autograph=False)
    def step(x, y):
        product = tf.matmul(x, tf.reshape(tf.transpose(y), (20, 10)))  # 400 bytes; the transposition takes none,
        return product, tf.transpose(y)  # and that which is asked for 800.

    graph = step.get_concrete_function(tf.TensorSpec((10, 20)), tf.TensorSpec((10, 20))).graph
    peak, _ = Liveness(graph.get_operations(), graph.outputs).run()
    assert peak == 400 + 800


def test_the_loss_keeps_one_tensor_of_the_size_of_the_logits():
    few, many = (
        training_step(language_model(), ROWS, LENGTH),
        training_step(language_model(words=4 * WORDS), ROWS, LENGTH),
    )
    logits = 4 * ROWS * LENGTH * 3 * WORDS
    # The gradient: the logits themselves are no longer needed.
    assert many.kept - few.kept == pytest.approx(logits, rel=0.02)


def test_operations_of_products_are_those_of_the_formula():
    model = language_model()
    step = training_step(model, ROWS, LENGTH)
    tokens, layers, width, inner = ROWS * LENGTH, SIZE.num_layers, SIZE.hidden_dim, SIZE.intermediate_dim
    kernels = layers * (4 * width**2 + 2 * width * inner) + WORDS * width
    # The whole square of attention: queries with keys, weights with values.
    expected = 6 * kernels * tokens + 12 * layers * LENGTH * tokens * width
    assert step.flops == pytest.approx(expected, rel=0.02)


def test_weights_and_what_the_optimizer_keeps():
    count = language_model().count_params()
    found = planned(optimizer="momentum", accumulate=True)
    assert (found.parameters, found.gradients, found.optimizer) == (count, 4 * count, 8 * count)
    assert found.training > found.weights + found.optimizer + found.gradients
    assert planned(optimizer="sgd").optimizer == 0


def test_recomputation_keeps_the_inputs_of_the_blocks():
    plain, recomputed = planned(), planned(recompute=1)
    # Those of the head stay.
    assert recomputed.activations < plain.activations / 2
    assert recomputed.training < plain.training
    assert recomputed.flops > 1.2 * plain.flops


def test_activations_grow_with_the_batch():
    few, many = planned(), planned(batch_size=4 * ROWS)
    assert many.activations == pytest.approx(4 * few.activations, rel=0.02)
    assert (many.weights, many.optimizer) == (few.weights, few.optimizer)


def test_cache_is_keys_and_values_of_all_tokens():
    assert planned().cache == 2 * 4 * SIZE.num_layers * ROWS * LENGTH * SIZE.hidden_dim
    with unallocated():
        encoder = models.Encoder(SIZE, WORDS)
    assert planned(encoder).cache is planned(encoder).token is None


def test_many_devices():
    one, four = planned(), planned(devices=4)
    assert (four.training, four.flops) == (one.training, 4 * one.flops)
    # A ring of four sends three quarters of the gradients, twice, at half of what a link does in both directions.
    assert four.exchange == pytest.approx(1.5 * four.gradients / 0.5e9)
    split = planned(devices=4, model_parallel=4)
    assert one.weights / 4 < split.weights < one.weights / 3
    assert one.activations / 4 < split.activations < one.activations
    assert split.step - split.exchange < one.step


def test_time_is_that_of_the_slower_of_computing_and_moving():
    slow = planned()
    computing = plan(language_model(), PLAIN._replace(bandwidth=1e9), batch_size=ROWS, length=LENGTH, efficiency=1.0)
    assert computing.step == pytest.approx(computing.flops / 0.5e12, rel=1e-3)  # float32: half of the peak
    assert planned(efficiency=1.0).step == pytest.approx(slow.step / 2, rel=1e-6)


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
COUNT = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 3 * 32 + 2 * 100 * 32


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_named_models_and_configs(config):
    assert build("gpt2:small").count_params() == 124_439_808
    assert build(config).count_params() == build(config / "config.json").count_params() == COUNT
    model = build(config, "mixed_bfloat16")
    assert model.compute_dtype == "bfloat16"
    assert keras.config.dtype_policy().name == "float32"
    assert not any(variable._value is not None for variable in model.variables)


# Parameters of the published checkpoints, with their heads.
PUBLISHED = {
    "llama:2-7B": 6_738_415_616,
    "llama:3-8B": 8_030_261_248,
    "llama:3.2-1B": 1_235_814_400,
    "mistral:7B": 7_241_732_096,
    "mixtral:8x7B": 46_702_792_704,
    "qwen2:0.5B": 494_032_768,
    "qwen2:7B": 7_615_616_512,
    "qwen3:8B": 8_190_735_360,
    "gemma:2B": 2_506_172_416,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_models_are_the_published_ones(name):
    # Mixtral's routers also count what they choose.
    assert sum(math.prod(each.shape) for each in build(name).trainable_variables) == PUBLISHED[name]


def test_sizes_are_read_from_the_source_as_the_models_know_them():
    assert model_names() == tuple(models.MODELS)
    unread = {name for name in model_names() if size_names(name) is None}
    assert unread == {
        *("image_autoencoder", "clip_text", "clip_vision", "siglip_text", "siglip_vision", "siglip2_vision", "pegasus")
    }
    for name in set(model_names()) - unread:
        others = [*inspect.signature(models.MODELS[name]).parameters.values()][1:]
        required = {each.name: 8 for each in others if each.default is each.empty and each.kind is not each.VAR_KEYWORD}
        with pytest.raises(ValueError, match="Unknown size='no such'") as caught:
            models.MODELS[name]("no such", **required)
        assert sorted(size_names(name)) == str(caught.value).partition("Valid names: ")[2].split(", "), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_policies_of_keras(dtype):
    assert keras.dtype_policies.get(dtype).name == dtype


DEEP, DEEPER = models.Size(9, 16, 2, 32), models.Size(12, 16, 2, 32)
WINDOW = attention.MultiHeadAttention(2, 8, mechanism=attention.LocalAttention(window=4))
REPEATED = {
    "decoder": ((9, 1), lambda: models.Decoder(DEEP, WORDS)),
    "windows": ((6, 2), lambda: models.Decoder(DEEPER, WORDS, attention=[WINDOW, "softmax"])),
    "hybrid": (
        (6, 2),
        lambda: models.Decoder(DEEPER, WORDS, attention=[recurrence.MultiScaleRetention(2, 8), "softmax"]),
    ),
    "encoder": ((9, 1), lambda: models.Encoder(DEEP, WORDS)),
    "experts": ((9, 1), lambda: models.Decoder(DEEP, WORDS, feedforward="mixture_of_experts")),
    "encoder-decoder": ((9, 1), lambda: models.Transformer(DEEP, WORDS)),
    "shared weights": (None, lambda: models.ALBERT(DEEP, WORDS)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, options",
    [
        *((name, {}) for name in REPEATED),
        ("windows", {"recompute": 1}),
        ("windows", {"devices": 2, "model_parallel": 2}),
    ],
)
def test_few_of_equal_blocks_cost_what_all_do(name, options, monkeypatch):
    groups, make = REPEATED[name]
    with unallocated():
        model = make()
        model = tasks.LanguageModel(model) if model.name == "decoder" else model
    found = find_groups(model)
    assert groups == (found and (found.count, found.size))
    few = planned(model, **options)
    monkeypatch.setattr("keras_transformer.planning.planner.find_groups", lambda model: None)
    every = planned(model, **options)
    assert few.split == every.split
    numbers = [[each for each in (*plan[:-2], *plan.times) if each is not None] for plan in (few, every)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-9)


def allocated(passed):
    return [(each.memory[0].tolist(), times) for each, times in passed.runs]


def test_a_step_is_divided_where_a_further_block_adds_to_it():
    one, two, three, four = (Event(allocated=float(count)) for count in (1, 2, 3, 4))
    step = Events([one, two, two, three], [three, four, four, one])
    longer = Events([one, two, two, two, three], [three, four, four, four, one])
    pieces = divide(step, longer, 2, 9)
    assert pieces[3:] == (9, ((0, 0), (0, 0)))
    forward, backward = pieces.passes()
    assert allocated(forward) == [([1], 1), ([2], 9), ([3], 1)]
    assert allocated(backward) == [([3], 1), ([4], 9), ([1], 1)]
    assert forward.memory() == (22, 22)
    assert allocated(pieces.passes(first=False, blocks=3, last=False)[0]) == [([2], 3)]


def test_what_differs_in_more_than_one_run_is_not_divided():
    one, two, three = (Event(allocated=float(count)) for count in (1, 2, 3))
    step = Events([one, two], [three])
    assert divide(step, Events([one, three, two, three], [three]), 1, 4) is None
    assert divide(step, Events([one], [three]), 1, 4) is None
    # The first block is not like the others: it stays before them.
    pieces = divide(step, Events([one, three, two], [three, three]), 1, 4)
    assert pieces.held == ((1, 0), (0, 0))
    assert allocated(pieces.passes()[0]) == [([1], 1), ([3], 3), ([2], 1)]


def test_half_precision_halves_what_is_kept(config):
    full, half = (planned(build(config, dtype), batch_size=40) for dtype in ("float32", "mixed_bfloat16"))
    assert half.weights == full.weights
    assert half.activations < 0.8 * full.activations
    assert half.cache == full.cache / 2
    assert half.decoding < full.decoding


def test_products_in_loops_count_as_often_as_they_turn():
    x = keras.Input((9, 6))
    model = keras.Model(x, keras.layers.SimpleRNN(4, use_bias=False, return_sequences=True)(x))
    forward, of_kernels, of_state = 6 * 4 + 4 * 4, 6 * 4 + 4 * 4, 4 * 4
    assert training_step(model, ROWS, 9).flops == 2 * 9 * ROWS * (forward + of_kernels + of_state)


def test_loops_within_loops_turn_as_often_as_they_must():
    """Causal tiles: the first row of them needs one, the last needs all."""
    with unallocated():
        tiles = attention.BlockwiseAttention(query_block_size=4, block_size=4)
        mixer = attention.MultiHeadAttention(4, 8, mechanism=tiles)
        tiled = tasks.LanguageModel(models.Decoder(SIZE, WORDS, attention=mixer))
        plain = tasks.LanguageModel(models.Decoder(SIZE, WORDS, attention=attention.MultiHeadAttention(4, 8)))
    square = 2 * SIZE.num_layers * ROWS * LENGTH**2 * SIZE.hidden_dim
    # Products of a whole square: two forward, four backward; tiles compute 10 of 16, and the scores a second time.
    kernels = planned(plain).flops - 6 * square
    assert planned(tiled).flops == pytest.approx(kernels + 7 * square * 10 / 16, rel=0.01)


@pytest.mark.parametrize(
    ("turn", "tensors"),
    [
        (tf.tanh, 1),  # What each tanh gave.
        (lambda y: y * tf.tanh(y), 2),  # And what came in.
        (lambda y: tf.tanh(tf.matmul(y, y)), 1),  # What came in is what the tanh before gave.
    ],
)
def test_what_a_loop_keeps_of_each_round_by_hand(turn, tensors):
    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda i, y: i < 7, lambda i, y: (i + 1, turn(y)), (0, x))[1]
        return tape.gradient(y, x)

    graph = step.get_concrete_function(tf.TensorSpec((10, 10))).graph
    subgraphs = Subgraphs(graph)
    forward, backward = (node for node in graph.get_operations() if node.type in LOOPS)
    assert subgraphs.trip_count(forward) == subgraphs.trip_count(backward) == 7
    lists = [tensor for tensor in forward.outputs if is_list(tensor)]
    for kept in (lists, subgraphs.popped_lists(backward)):
        assert sum(subgraphs.list_bytes(tensor, size_of) for tensor in kept) == 7 * tensors * 400


def test_rounds_are_not_guessed():
    class Halve(keras.layers.Layer):
        def call(self, x):
            return keras.ops.while_loop(lambda x: keras.ops.max(x) > 1, lambda x: (x / 2,), (x,))[0]

    x = keras.Input((4,))
    with pytest.raises(UnknownCostError, match="is not known"):
        training_step(keras.Model(x, Halve()(x)), ROWS, LENGTH)


def test_devices_by_name():
    assert get_device("H100") is DEVICES["h100"]
    with pytest.raises(ValueError, match="rtx 4090"):
        get_device("abacus")


def test_command_prints_a_table_and_json(config, capsys):
    words = ["plan", str(config), "--device", "t4", "--length", "8", "--devices", "2", "--model-parallel", "2"]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:8] == [
        f"model     {config}, float32, attention scores in memory",
        "batch     1 x 8 tokens in each replica, tensor 2",
        "optimizer adamw",
        "device    2 x t4: 16 GB, 65 TFLOP/s in 16 bits, 320 GB/s",
        "reached   65% of the TFLOP/s, 80% of the GB/s",
        "links     16 GB/s each way among 8, 12.5 to others; 70% reached",
        "",
        f"{COUNT:,} parameters",
    ]
    assert [line.split()[0] for line in printed if line.startswith("  ")] == [
        *("weights", "gradients", "optimizer", "activations", "at", "step", "bound", "cache", "at", "token")
    ]
    assert sum(line.endswith("  fits") for line in printed) == 2
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["optimizer"] == 2 * found["gradients"]


@pytest.mark.parametrize(
    "words, reason",
    [
        (["nothing"], "neither a config.json nor MODEL:SIZE"),
        (["gpt2:tiny"], "small"),
        (["gpt2:small", "--device", "abacus"], "abacus"),
        (["gpt2:small", "--optimizer", "luck"], "adamw"),
        (["CONFIG", "--devices", "3", "--model-parallel", "2"], "groups of 2"),
        (["CONFIG", "--efficiency", "2"], "(0, 1]"),
        (["CONFIG", "--loss-chunk", "0"], "loss_chunk must be at least 1: 0"),
        (["bert:base", "--loss-chunk", "8"], "loss_chunk is for language models with a decoder"),
        (["CONFIG", "--zero", "4"], "zero must be 0, 1, 2 or 3: 4"),
        (["CONFIG", "--search", "--zero", "3"], "--search chooses --zero"),
        (
            ["bert:base", "--length", "600"],
            "ValueError: Learned.call(): A sequence has 600 tokens; the position table has 512 rows.",
        ),
    ],
)
def test_command_says_what_is_wrong(config, capsys, words, reason):
    words = [str(config) if word == "CONFIG" else word for word in words]
    assert cli.main(["plan", "--length", "4", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert reason in captured.err


# Bytes of data sheets: peak TFLOPS, GB, GB per second, GB per second of the links.
SHEETS = {
    "h100": (989, 80, 3350, 900, 0.5, True),
    "a100": (312, 80, 2039, 600, 0.5, True),
    "b200": (2250, 180, 8000, 1800, 0.5, True),
    "l4": (121, 24, 300, 64, 0.5, True),
    "t4": (65, 16, 320, 32, 0.125, True),
    "v100": (125, 32, 900, 300, 0.125, True),
    "rtx 4090": (165, 24, 1008, 64, 0.5, True),
    "tpu v5p": (459, 95, 2765, 1200, 0.5, True),
}
TOTALS = (11_088, 1_358, 44_290, 10_568)


@pytest.mark.parametrize("name", SHEETS)
def test_devices_have_the_numbers_of_their_data_sheets(name):
    assert tuple(DEVICES[name])[:6] == SHEETS[name]


def test_no_device_changes_unnoticed():
    """The columns of the whole table add up to these."""
    assert tuple(sum(column) for column in list(zip(*DEVICES.values(), strict=True))[:4]) == TOTALS
    assert {name for name, device in DEVICES.items() if device.float32 != 0.5} == {"t4", "v100"}
    assert all(device.fuses for device in DEVICES.values())


@pytest.mark.parametrize(
    "optimizer, slots", [("sgd", 0), ("momentum", 1), ("lion", 1), ("adam", 2), ("adamw", 2), ("fused_adamw", 2)]
)
def test_state_of_the_optimizers(optimizer, slots):
    assert OPTIMIZER_SLOTS[optimizer] == slots
    found = planned(optimizer=optimizer)
    assert found.optimizer == slots * found.gradients


def test_time_of_a_step_by_hand():
    """Time of the nodes; of the update, which reads gradient and weight, writes the weight, reads and writes the state."""
    model, device = language_model(), Device(1e9, 1.0, 2.0, 1.0)
    found = plan(model, device, batch_size=ROWS, length=LENGTH, optimizer="adam", efficiency=0.25)
    nodes = training_step(model, ROWS, LENGTH).operations.moved
    update = 3 * found.gradients + 2 * 2 * found.gradients
    assert found.step == pytest.approx((nodes + update) / (0.25 * 2e9))
    assert found.tokens == pytest.approx(ROWS * LENGTH / found.step)


def test_peak_and_its_share_in_float32_by_hand():
    model, device = language_model(), Device(4.0, 1.0, 1e15, 1.0, float32=0.125)
    device = device.at(1.0)
    cost = training_step(model, ROWS, LENGTH)
    assert cost.seconds(device) == pytest.approx(cost.flops / (4e12 * 0.125), rel=1e-6)
    assert cost.seconds(device, "bfloat16") == pytest.approx(cost.flops / 4e12, rel=1e-6)
    assert planned().training == planned().weights + planned().optimizer + cost.peak


def test_hidden_states_are_the_first_outputs_of_blocks():
    with unallocated():
        model = models.RWKV7(SIZE, WORDS)
    assert any(isinstance(layer.output, list | tuple) for layer in model.layers if isinstance(layer, Block))
    assert Sharding(model, 1).widths == {SIZE.hidden_dim}


def test_exchange_under_tensor_parallelism_by_hand():
    found = planned(devices=2, model_parallel=2)
    # Per block four all-reduces of the hidden states; in a ring of two each device sends them once.
    hidden_states = 4 * ROWS * LENGTH * SIZE.hidden_dim
    assert found.exchange == pytest.approx(4 * SIZE.num_layers * hidden_states / 0.5e9)
    both = planned(devices=4, model_parallel=2)
    assert both.exchange == pytest.approx(found.exchange + both.gradients / 0.5e9)


def test_a_loop_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("keras_transformer.planning.graph.trip_counts._MAX_TRIPS", 6)

    @tf.function(autograph=False)
    def step(x):
        return tf.while_loop(lambda i, y: i < 7, lambda i, y: (i + 1, y + 1), (0, x))[1]

    with pytest.raises(UnknownCostError, match="more than 6 iterations"):
        Subgraphs(step.get_concrete_function(tf.TensorSpec((2,))).graph)
