"""Super-blocks of ggml: their bytes, and their errors beside those of ggml's own."""

import pathlib

import numpy as np
import pytest
from gguf_files import F32, LLAMA, gguf_bytes, tensor_info

from keras_transformer import checkpoints
from keras_transformer.checkpoints.gguf import k_quants
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.checkpoints.gguf.kinds import Kinds, encoded

gguf = pytest.importorskip("gguf")
REFERENCE = np.load(pathlib.Path(__file__).parents[1] / "data" / "k_quants.npz")
KINDS = ("Q4_K", "Q5_K", "Q6_K")


def decoded(blocks, kind):
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])


def error(rows, blocks, kind):
    return float(np.sqrt(np.mean(np.square(decoded(blocks, kind) - rows))))


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_ggml(kind):
    rows, theirs = REFERENCE["rows"], REFERENCE[kind]
    ours = k_quants.quantize(rows, kind)
    assert ours.shape == theirs.shape
    assert (ours == theirs).mean() > 0.95
    for part in (slice(0, 4), slice(4, 8), slice(8, 12)):
        assert error(rows[part], ours[part], kind) < 1.003 * error(rows[part], theirs[part], kind)


def test_errors_are_below_those_of_plain_blocks():
    rows = np.random.default_rng(1).normal(size=(32, 1024)).astype("float32")
    errors = {each: error(rows, encoded(rows, each), each) for each in (*KINDS, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")}
    order = ("Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0")
    assert sorted(errors, key=errors.get) == list(order)
    # Uniform steps over the range of 32 normal numbers, about 4.1 deviations, err by step / sqrt(12).
    assert 0.065 < errors["Q4_K"] < 4.2 / 15 / np.sqrt(12)
    assert 0.032 < errors["Q5_K"] < 4.2 / 31 / np.sqrt(12)


def test_numbers_on_the_lattice_of_q4_k_are_kept():
    random = np.random.default_rng(2)
    codes = random.integers(0, 16, (8, 32))
    codes[:, :2] = 0, 15
    scales, lows = np.array([63, 1, 20, 33, 48, 16, 7, 62]), np.array([0, 63, 15, 16, 47, 31, 32, 1])
    rows = (scales[:, None] * codes * 2.0**-8 - lows[:, None] * 2.0**-6).astype("float32").reshape(1, 256)
    blocks = k_quants.quantize(rows, "Q4_K")
    np.testing.assert_array_equal(decoded(blocks, "Q4_K"), rows)
    assert blocks[0, :4].view("float16").tolist() == [2.0**-8, 2.0**-6]
    # The upper two bits of the last four scales and minima are in the bytes of the first four.
    assert blocks[0, 4:8].tolist() == [63 | 3 << 6, 1 | 1 << 6, 20, 33 | 3 << 6]
    assert blocks[0, 8:12].tolist() == [0 | 2 << 6, 63 | 1 << 6, 15 | 2 << 6, 16]
    assert blocks[0, 12:16].tolist() == [0 | 15 << 4, 0 | 15 << 4, 7 | 0 << 4, 14 | 1 << 4]
    np.testing.assert_array_equal(blocks[0, 16:48], codes[0] | codes[1] << 4)


def test_numbers_on_the_lattice_of_q5_k_are_kept():
    codes = np.random.default_rng(3).integers(0, 32, (8, 32))
    codes[:, :2] = 0, 31
    scales = np.array([63, 5, 20, 33, 48, 16, 7, 62])
    rows = (scales[:, None] * codes * 2.0**-8 - 2.0**-6 * 63).astype("float32").reshape(1, 256)
    blocks = k_quants.quantize(rows, "Q5_K")
    np.testing.assert_array_equal(decoded(blocks, "Q5_K"), rows)
    # A bit for each sub-block: that of 16.
    np.testing.assert_array_equal(blocks[0, 16:48], ((codes >> 4) << np.arange(8)[:, None]).sum(axis=0))
    np.testing.assert_array_equal(blocks[0, 48:80], codes[0] & 15 | (codes[1] & 15) << 4)


def test_numbers_on_the_lattice_of_q6_k_are_kept():
    codes = np.random.default_rng(4).integers(-31, 32, (16, 16))
    codes[:, 0] = -32
    scales = np.array([-128, 127, 64, -3] * 4)
    rows = (scales[:, None] * codes * 2.0**-10).astype("float32").reshape(1, 256)
    blocks = k_quants.quantize(rows, "Q6_K")
    np.testing.assert_array_equal(decoded(blocks, "Q6_K"), rows)
    assert blocks[0, 208:].view("float16").tolist() == [2.0**-10]
    assert blocks[0, 192:208].view("int8").tolist() == scales.tolist()
    whole = (codes + 32).reshape(8, 32)
    np.testing.assert_array_equal(blocks[0, :32], whole[0] & 15 | (whole[2] & 15) << 4)
    np.testing.assert_array_equal(blocks[0, 128:160], sum((whole[part] >> 4) << 2 * part for part in range(4)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e-30])
def test_constant_blocks(kind, value):
    rows = np.full((2, 512), value, "float32")
    np.testing.assert_allclose(decoded(k_quants.quantize(rows, kind), kind), rows, rtol=1e-3, atol=1e-8)


def test_rows_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match=r"rows of Q4_K must be multiples of 256. Received: \(2, 320\)"):
        k_quants.quantize(np.zeros((2, 320), "float32"), "Q4_K")


def test_a_mixture_has_more_bits_at_both_ends():
    names = ["token_embd.weight", *(f"blk.{index}.attn_v.weight" for index in range(16))]
    kinds = Kinds("Q4_K_M", names)
    exact = [index for index in range(16) if kinds.of(f"blk.{index}.ffn_down.weight", (256, 512)) == "Q6_K"]
    # Of 16 blocks two at each end, and every third between them.
    assert exact == [0, 1, 4, 7, 10, 13, 14, 15]
    assert kinds.of("blk.0.ffn_up.weight", (512, 256)) == "Q4_K"
    assert kinds.of("blk.0.attn_qkv.weight", (768, 256)) == "Q5_K"
    # The embedding is the head too, unless there is another one.
    assert kinds.of("token_embd.weight", (100, 256)) == "Q6_K"
    assert Kinds("Q4_K_M", [*names, "output.weight"]).of("token_embd.weight", (100, 256)) == "Q4_K"
    assert (kinds.file_type(["Q4_K", "Q4_K", "Q6_K"]), kinds.file_type(["Q5_0"])) == (15, 8)


@pytest.mark.parametrize(("kind", "other"), [("Q4_K", "Q5_0"), ("Q5_K", "Q5_1"), ("Q6_K", "Q8_0"), ("Q4_K_M", "Q5_0")])
def test_rows_that_are_no_super_blocks_have_more_bits(kind, other):
    kinds = Kinds(kind, ["token_embd.weight", "output.weight", *(f"blk.{index}.ffn_up.weight" for index in range(8))])
    assert kinds.of("blk.2.ffn_up.weight", (1536, 576)) == other
    assert kinds.of("output.weight", (1000, 576)) == "Q8_0"
    assert kinds.of("blk.2.ffn_up.weight", (64, 48)) == "F16"
    assert kinds.of("blk.2.ffn_norm.weight", (576,)) == "F32"


def test_a_model_is_written_and_read_again(tmp_path):
    sizes = {"token_embd": (256, 40), "output_norm": (256,)}
    block = {"attn_q": (256, 256), "attn_k": (256, 256), "attn_v": (256, 256), "attn_output": (256, 256)}
    block |= {
        "attn_norm": (256,),
        "ffn_gate": (256, 96),
        "ffn_up": (256, 96),
        "ffn_down": (96, 256),
        "ffn_norm": (256,),
    }
    sizes |= {f"blk.0.{name}": each for name, each in block.items()}
    starts = np.cumsum([0, *(4 * np.prod(each) for each in sizes.values())])
    infos = [
        tensor_info(f"{name}.weight", each, F32, start)
        for (name, each), start in zip(sizes.items(), starts, strict=False)
    ]
    values = np.random.default_rng(0).normal(size=starts[-1] // 4).astype("float32")
    metadata = LLAMA | {"llama.embedding_length": 256, "llama.feed_forward_length": 96}
    (tmp_path / "a.gguf").write_bytes(gguf_bytes(metadata, infos, values.tobytes()))
    model = checkpoints.from_gguf(tmp_path / "a.gguf", verbose=0)
    checkpoints.to_gguf(model, tmp_path / "b.gguf", quantize="Q4_K", verbose=0)
    original, written = Container(tmp_path / "a.gguf"), Container(tmp_path / "b.gguf")
    kinds = {"token_embd.weight": "Q6_K", "blk.0.ffn_down.weight": "Q5_0"}
    for name, tensor in original.tensors.items():
        expected = "F32" if len(tensor.shape) == 1 else kinds.get(name, "Q4_K")
        assert written.tensors[name].kind == expected, name
        assert written.blocks(name).tobytes() == encoded(original.read(name), expected).tobytes(), name
    assert written.metadata["general.file_type"] == 14
    again = checkpoints.from_gguf(tmp_path / "b.gguf", verbose=0)
    for one, two in zip(model.variables, again.variables, strict=True):
        one, two = np.asarray(one), np.asarray(two)
        assert np.sqrt(np.mean(np.square(one - two))) < 0.08 * one.std() + 1e-6
