"""Layers that repeat are traced and converted once, and the graphs compute what they did."""

import collections

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import models, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.export.graph.repeated_layers import MARK, RepeatedLayers
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.spec.language.spec import language_spec

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
VOCABULARY = 40


def encoder(layers=4, **options):
    keras.utils.set_random_seed(1)
    return models.Encoder(models.Size(layers, 16, 2, 24), VOCABULARY, **options)


def traced(spec):
    from keras_transformer.export.graph.traced import TracedModule

    return TracedModule(spec)


def functions(graph):
    return [each for each in graph.outlined.library.function if MARK in each.signature.name]


def results(traced, name, inputs):
    """The outputs of the graph without functions."""
    import tensorflow as tf

    from keras_transformer.export.verification.graph_execution import GraphExecution

    graph = traced.graphs[name]
    tensors = {key: tf.convert_to_tensor(array) for key, array in inputs.items()}
    tensors |= {label: each.read_value() for label, each in traced.variables(graph).items()}
    return [each.numpy() for each in GraphExecution(graph.graph_def)(tensors, list(graph.outputs.values()))]


def kinds(graph_def):
    """How many operations of each kind compute something."""
    return collections.Counter(node.op for node in graph_def.node if node.op != "Identity")


def without_repeats(monkeypatch):
    monkeypatch.setattr(RepeatedLayers, "_repeated", lambda *args: [])


@pytest.mark.slow
def test_blocks_share_a_function_and_the_graph_is_the_same(monkeypatch):
    spec = functional_spec(encoder())
    shared = traced(spec)
    without_repeats(monkeypatch)
    apart = traced(spec)
    assert len(functions(shared.graphs["serve"])) == 1
    assert not functions(apart.graphs["serve"])
    assert kinds(shared.graphs["serve"].graph_def) == kinds(apart.graphs["serve"].graph_def)
    assert shared.graphs["serve"].weights == apart.graphs["serve"].weights
    for probe in spec.signatures["serve"].probes:
        for found, expected in zip(
            results(shared, "serve", probe.inputs), results(apart, "serve", probe.inputs), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_each_block_reads_its_own_weights():
    model = encoder()
    spec = functional_spec(model)
    probe = spec.signatures["serve"].probes[2]
    graphs = traced(spec)
    before = results(graphs, "serve", probe.inputs)[0]
    kernel = next(each for each in model.variables if each.path.endswith("encoder_block_2/feedforward/output/kernel"))
    kernel.assign(kernel * 2.0)
    after = results(graphs, "serve", probe.inputs)[0]
    expected = np.asarray(model(dict(probe.inputs), training=False))
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, expected, atol=2e-5)


@pytest.mark.exhaustive
def test_blocks_of_two_kinds_have_two_functions():
    """Windows of 2 and of 5 tokens in turn, of which a probe of 17 tokens sees the difference."""
    inputs = keras.Input((None, 8), name="x")
    x = inputs
    for number in range(4):
        window = {"class_name": "keras_transformer>LocalAttention", "config": {"window": (2, 5)[number % 2]}}
        x = Block(MultiHeadAttention(2, 4, mechanism=window), name=f"block_{number}")(x)
    model = keras.Model(inputs, x)
    spec = functional_spec(model)
    graphs = traced(spec)
    assert len(functions(graphs.graphs["serve"])) == 2
    probe = max(spec.signatures["serve"].probes, key=lambda each: each.inputs["x"].shape[1])
    (output,) = probe.outputs.values()
    np.testing.assert_allclose(results(graphs, "serve", probe.inputs)[0], output, atol=1e-5)


@keras.saving.register_keras_serializable("tests")
class Block(keras.layers.Layer):
    """Attention and a sum, with whatever else a test wants of it."""

    def __init__(self, attention, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.attention, self.scale = attention, scale

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x, mask=None):
        return x + self.scale * self.attention(x, x, value_mask=mask)

    def get_config(self):
        attention = keras.saving.serialize_keras_object(self.attention)
        return {**super().get_config(), "attention": attention, "scale": self.scale}

    def compute_output_shape(self, shape):
        return shape


def stack(scales=(1.0, 1.0, 1.0)):
    keras.utils.set_random_seed(2)
    inputs = keras.Input((None,), name="ids", dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, 8, mask_zero=True)(inputs)
    for number, scale in enumerate(scales):
        x = Block(MultiHeadAttention(2, 4), scale, name=f"block_{number}")(x)
    return keras.Model(inputs, x)


def outputs_of(model, ids):
    spec = functional_spec(model, probes=[{"ids": ids}])
    (probe,) = spec.signatures["serve"].probes
    graphs = traced(spec)
    return len(functions(graphs.graphs["serve"])), results(graphs, "serve", probe.inputs)[0], probe.outputs["output"]


IDS = np.array([[3, 5, 7, 0, 0], [2, 9, 4, 1, 6]], "int32")


@pytest.mark.exhaustive
def test_masks_of_keras_go_in_and_come_out():
    count, found, expected = outputs_of(stack(), IDS)
    assert count in (1, 2)  # The first mask comes from another layer.
    np.testing.assert_allclose(found, expected, atol=1e-6)
    _, other, _ = outputs_of(stack(), np.where(IDS == 0, 8, IDS))
    assert np.abs(other[0, :3] - found[0, :3]).max() > 1e-3  # The mask is what makes the difference.


def test_layers_with_other_settings_are_apart():
    count, found, expected = outputs_of(stack((1.0, 1.001, 0.5)), IDS)
    assert count == 0
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.exhaustive
def test_a_layer_with_a_changed_part_is_apart():
    """The block's own config still has the activation that it was built with."""
    model = encoder(activation="gelu")
    path = "encoder_block_2/feedforward/hidden"
    hidden = next(each for each in model._flatten_layers() if (each.path or "").endswith(path))
    hidden.activation = keras.activations.tanh
    spec = functional_spec(model)
    found = traced(spec)
    assert len(functions(found.graphs["serve"])) == 1
    ids = np.arange(12).reshape(2, 6).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones((2, 6), bool)}
    np.testing.assert_allclose(results(found, "serve", inputs)[0], np.asarray(model(inputs)), atol=1e-5)


@pytest.mark.exhaustive
def test_a_layer_whose_call_was_replaced_is_apart():
    model = stack((1.0, 1.0, 1.0))
    part = model.get_layer("block_1").attention
    call = part.call
    vars(part)["call"] = lambda *args, **kwargs: call(*args, **kwargs) * 3.0
    count, found, expected = outputs_of(model, IDS)
    del vars(part)["call"]
    assert count in (1, 2)  # Of the two others.
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(outputs_of(model, IDS)[1] - found).max() > 1e-2


@keras.saving.register_keras_serializable("tests")
class Remembering(Block):
    """A block that reads what its owner knows, beside its arguments."""

    shared = None

    def call(self, x, mask=None):
        return super().call(x, mask) + ops.mean(Remembering.shared)


def test_a_layer_that_reads_more_than_its_arguments_is_apart():
    inputs = keras.Input((None, 8), name="x")
    Remembering.shared = np.ones(1, "float32")
    first = keras.layers.Dense(8, name="first")
    model = keras.Sequential([inputs, first, *(Remembering(MultiHeadAttention(2, 4)) for _ in range(3))])
    spec = functional_spec(model)
    call = first.call

    def remembered(x, **options):
        Remembering.shared = call(x)  # A tensor of the graph that is being traced.
        return Remembering.shared

    vars(first)["call"] = remembered
    graphs = traced(spec)
    del vars(first)["call"]
    assert not [node for node in graphs.graphs["serve"].outlined.node if MARK in node.attr["f"].func.name]


@pytest.mark.exhaustive
def test_weights_that_a_layer_does_not_read_are_no_arguments():
    sizes = models.Size(3, 16, 2, 24)
    backbone = models.Mixtral(sizes, VOCABULARY)
    graphs = traced(functional_spec(backbone))
    (function,) = functions(graphs.graphs["serve"])
    block = next(each for each in backbone.layers if "block" in each.name)
    names = [each.name for each in function.signature.input_arg if each.name.startswith("weight_")]
    read = {block.variables[int(name.removeprefix("weight_"))].path for name in names}
    assert {each.path for each in block.trainable_variables} == read
    assert any(each.path.endswith("loads") for each in block.variables)


@keras.saving.register_keras_serializable("tests")
class Kept(Block):
    """A block that keeps what it computes within."""

    values = []

    def call(self, x, mask=None):
        Kept.values.append(2.0 * x)
        return super().call(x, mask)


class Collecting(keras.Model):
    """A functional model that adds what its blocks keep to its output."""

    def call(self, inputs, training=None, mask=None):
        Kept.values.clear()
        output = super().call(inputs, training=training, mask=mask)
        return output + sum(Kept.values)


def test_what_is_kept_of_every_call_is_found():
    inputs = keras.Input((None, 8), name="x")
    x = inputs
    for number in range(3):
        x = Kept(MultiHeadAttention(2, 4), name=f"block_{number}")(x)
    model = Collecting(inputs, x)
    spec = functional_spec(model)
    graphs = traced(spec)
    probe = spec.signatures["serve"].probes[0]
    (output,) = probe.outputs.values()
    assert not functions(graphs.graphs["serve"])
    np.testing.assert_allclose(results(graphs, "serve", probe.inputs)[0], output, atol=1e-5)


class TestOnnx:
    """What the converter sees, and what the file has."""

    @pytest.mark.slow
    def test_the_converter_sees_one_block_whatever_the_depth(self):
        from keras_transformer.export.onnx.passes.repeated_parts import with_opaque_layers

        counts = {}
        for layers in (4, 8):
            graph, opaque = with_opaque_layers(traced(functional_spec(encoder(layers))).graphs["serve"])
            sizes = [len(each.graph_def.node) for each in opaque.repeated.values()]
            counts[layers] = len(graph.graph_def.node), sum(sizes)
        assert counts[4][1] == counts[8][1] > 100
        # An opaque operation, its result, and the weights.
        assert counts[8][0] - counts[4][0] < 4 * 25

    @pytest.mark.exhaustive
    def test_files_have_the_same_operators(self, monkeypatch, tmp_path):
        import onnx
        from onnx_graphs import all_nodes

        from keras_transformer.export.onnx.convert import write

        keras.utils.set_random_seed(4)
        backbone = models.Decoder(models.Size(3, 16, 2, 24), VOCABULARY, position="rotary")
        spec = language_spec(tasks.LanguageModel(backbone)).only(["onnx"])
        found = {}
        for kind in ("shared", "apart"):
            if kind == "apart":
                without_repeats(monkeypatch)
            (tmp_path / kind).mkdir()
            files = write(traced(spec), spec, tmp_path / kind)
            for name, file in files.items():
                graph = onnx.load(str(tmp_path / kind / file), load_external_data=False).graph
                found[kind, name] = collections.Counter(node.op_type for node in all_nodes(graph))
        names = {name for _, name in found}
        assert names == {"prefill", "decode", "decode_token", "generate"}
        for name in names:
            shared, apart = found["shared", name], found["apart", name]
            assert "PyFuncStateless" not in shared
            assert (shared - apart).total() <= 1, name  # A sum of two sizes that is not recognized as one of before.
            assert (apart - shared).total() <= 1, name
