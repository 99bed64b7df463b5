"""The test file that Keras ships for its own MultiHeadAttention, with ours in its place."""

import types

import keras
import pytest

from keras_transformer.attention import MultiHeadAttention

keras_suite = pytest.importorskip(
    "keras.src.layers.attention.multi_head_attention_test", reason="this release of Keras comes without its tests"
)

# Not ours to pass, with the reason. Every other test of Keras's file runs below.
EXCEPTIONS = {
    "test_causal_only_skipped_for_subclass": "overrides the private _compute_attention: here, mechanisms do that",
    "test_compute_attention_combines_causal_and_explicit_mask": "calls the private _compute_attention",
}


def _layers_with_ours():
    layers = types.SimpleNamespace(**vars(keras_suite.layers))
    layers.MultiHeadAttention = MultiHeadAttention
    return layers


def _is_excepted(name):
    return any(name.startswith(prefix) for prefix in EXCEPTIONS)


class TestKerasSuite(keras_suite.MultiHeadAttentionTest):
    @pytest.fixture(autouse=True)
    def _ours(self, monkeypatch):
        monkeypatch.setattr(keras_suite, "layers", _layers_with_ours())
        if _is_excepted(self._testMethodName):
            pytest.skip("not ours to pass")
        yield
        keras.config.enable_traceback_filtering()  # Keras's tests leave it off for those that follow.
