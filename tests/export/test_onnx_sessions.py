"""The options of ONNX Runtime's sessions."""

import threading
import time

import numpy as np
import onnx
import pytest
from onnx import parser

from keras_transformer.export.onnx import runtime
from keras_transformer.export.runtime.cancellation import Cancellation

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n, 2] x) => (float[n, 2] y) { y = Neg(x) }
"""


@pytest.mark.parametrize(
    ("flags", "exact"),
    [
        ((), False),
        (("avx2",), False),
        (("avx2", "avx_vnni"), True),
        (("avx2", "avx512bw"), False),
        # It has both, and ONNX Runtime takes the kernels of 512 bits.
        (("avx2", "avx512bw", "avx_vnni"), False),
        (("avx2", "avx512bw", "avx512_vnni"), True),
    ],
)
def test_products_are_widened_where_the_processor_does_not(flags, exact, tmp_path, monkeypatch):
    assert runtime.has_exact_products(flags) == exact
    monkeypatch.setattr(runtime, "_flags", lambda: frozenset(flags))
    onnx.save(parser.parse_model(MODEL), tmp_path / "model.onnx")
    session = runtime.onnx_session(str(tmp_path / "model.onnx"), 1)
    entry = session.get_session_options().get_session_config_entry("session.x64quantprecision")
    assert entry == ("0" if exact else "1")
    np.testing.assert_array_equal(session.run(None, {"x": np.ones((3, 2), "float32")})[0], -np.ones((3, 2)))


COUNTS = """
<ir_version: 8, opset_import: ["" : 17]>
counts (int64 count) => (float sum) <bool always = {1}, float one = {1}, float zero = {0}> {
  sum = Loop <body = step (int64 number, bool going, float before) => (bool on, float after) {
    on = Identity(going)
    after = Add(before, one)
  }> (count, always, zero)
}
"""


def test_a_computation_can_be_ended(tmp_path):
    """A loop of a thousand million steps ends when it is cancelled, and the session computes on."""
    onnx.save(parser.parse_model(COUNTS), tmp_path / "model.onnx")
    counts = object.__new__(runtime.OnnxRuntime)
    counts._session, counts._outputs, counts._caches = (
        runtime.onnx_session(str(tmp_path / "model.onnx"), 1),
        ["sum"],
        {},
    )
    cancellation, failed = Cancellation(), []

    def compute():
        with cancellation.applied():
            try:
                counts({"count": np.array(10**9)})
            except Exception as error:
                failed.append(str(error))

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    time.sleep(0.2)
    assert thread.is_alive()
    cancellation.cancel()
    thread.join(20)
    assert not thread.is_alive()
    assert "terminate" in failed[0].lower()
    assert counts({"count": np.array(3)})["sum"] == 3
