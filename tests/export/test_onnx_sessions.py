"""The options of ONNX Runtime's sessions."""

import numpy as np
import onnx
import pytest
from onnx import parser

from keras_transformer.export.onnx import runtime

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
