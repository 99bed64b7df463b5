"""The page of `keras-transformer view`: bytes by layer are those of the files, and nothing in a name is markup."""

import base64
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import keras
import numpy as np
import onnx
import pytest
from hand_made import bundle_of
from test_html_report import Page

from keras_transformer import attention, models
from keras_transformer.export.commands import main
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.weights import WeightBytes
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import get_format
from keras_transformer.export.viewing.attention import attention_record
from keras_transformer.export.viewing.gains import Gains, read_gains
from keras_transformer.export.viewing.layers import OTHER, blocks_of
from keras_transformer.export.viewing.page_server import page_server
from keras_transformer.export.viewing.view_page import view_page

WEIGHTS = {
    "block_0/dense/kernel": np.ones((8, 8), "float32"),
    "block_0/dense/bias": np.ones(8, "float32"),
    "block_1/dense/kernel.int8": np.ones((8, 8), "int8"),
    "block_1/dense/kernel.int8.scale": np.ones(8, "float32"),
    "axes": np.arange(2),
}


@pytest.fixture
def bundle(tmp_path):
    """A bundle of one ONNX file, whose last weights are used first."""
    return onnx_bundle(tmp_path / "bundle", WEIGHTS)


def onnx_bundle(path, weights):
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8]) for name in "xy")
    nodes = [onnx.helper.make_node("Identity", [name], [f"copy of {name}"]) for name in reversed(weights)]
    nodes.append(onnx.helper.make_node("Cos", ["x"], ["y"]))
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "graph", [x], [y], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    return bundle_of(path, "onnx", model.SerializeToString(), {"x": ("float32", (8,))}, {"y": ("float32", (8,))})


def lines(page):
    """The cells of each line of the tree, as text."""
    found = re.findall(r'<div class="line \w+">((?:<span.*?)+)</div>', page)
    return [re.sub(r"<[^>]+>", " ", cells.replace("<wbr>", "")).split() for cells in found]


def test_bytes_are_those_of_the_constants_in_the_order_of_their_use(bundle):
    found = list(get_format("onnx").weight_bytes(bundle, {"serve": "model.onnx"}))
    assert [each.name for each in found] == list(reversed(WEIGHTS))
    assert {each.name: (each.dtype, each.shape, each.size) for each in found} == {
        name: (str(array.dtype), array.shape, array.nbytes) for name, array in WEIGHTS.items()
    }


def test_bytes_by_layer_sum_to_the_weights_of_the_file(bundle):
    blocks = blocks_of({"ONNX": list(get_format("onnx").weight_bytes(bundle, {"serve": "model.onnx"}))})
    assert {block.name: block.size("ONNX") for block in blocks} == {
        "block_1": 64 + 32,
        "block_0": 256 + 32,
        OTHER: 16,
    }
    assert [block.name for block in blocks] == ["block_1", "block_0", OTHER]
    (kernel,) = blocks[0].weights
    assert (kernel.name, kernel.shape, kernel.dtypes["ONNX"]) == ("dense/kernel", (8, 8), "int8")


def test_names_of_converters_lead_to_their_layers():
    tflite = [
        WeightBytes("model_1/block_0_1/PartitionedCall/dense_1/BiasAdd;model_1/block_0_1/add", "float32", (8,), 32),
        WeightBytes("block_0/dense/kernel/multiplied", "float32", (8, 8), 256),
        WeightBytes("model_1/block_10_1/dense_1/Reshape", "int32", (2,), 8),
        WeightBytes("model_1/somewhere/Reshape", "int32", (2,), 8),
    ]
    onnx_names = [
        WeightBytes("block_0/dense/bias", "float32", (8,), 32),
        WeightBytes("block_10/kernel", "float32", (1,), 4),
    ]
    blocks = {block.name: block for block in blocks_of({"TFLite": tflite, "ONNX": onnx_names})}
    assert list(blocks) == ["block_0", "block_10", OTHER]
    assert [dict(each.sizes) for each in blocks["block_0"].weights] == [{"TFLite": 32, "ONNX": 32}, {"TFLite": 256}]
    assert [each.name for each in blocks["block_10"].weights] == ["dense/Reshape", "kernel"]


def test_lines_of_the_page_sum_to_the_file(bundle):
    size = (bundle / "model.onnx").stat().st_size
    page = view_page([bundle], Gains("score", "int8", 0.5, {"block_0/dense/kernel": 0.125}))
    found = lines(page)
    Page(page)
    assert ["dense/kernel", "8", "×", "8", "256", "B", "float32", "+12.50%"] in found
    assert ["block_0", "288", "B", "+12.50%"] in found
    assert ["1", "constants", "of", "less", "than", "64", "B", "32", "B"] in found
    assert found[-2] == ["graph,", "names", "and", "metadata", *readable_size(size - 400).split()]
    assert found[-1] == ["all", "files", *readable_size(size).split()]
    assert "the score gains if this weight alone stays in float, where all are quantized to int8" in page


def test_several_bundles_are_columns(bundle, tmp_path):
    small = onnx_bundle(tmp_path / "small", {"block_0/dense/kernel": np.ones((8, 8), "float16")})
    found = lines(view_page([bundle, small]))
    assert found[0] == ["bundle", "·", "ONNX", "small", "·", "ONNX"]
    assert ["dense/kernel", "8", "×", "8", "256", "B", "float32", "128", "B", "float16"] in found
    assert ["dense/kernel", "8", "×", "8", "96", "B", "int8", "–"] in found


def test_names_are_escaped(tmp_path):
    name = "<script>alert('x')</script>"
    bundle = onnx_bundle(tmp_path / name.replace("/", "-"), {f"{name}/dense/kernel": np.ones(64, "float32")})
    record = {"maps": [{"layer": name, "shape": [1, 1, 1], "largest": 1.0, "scores": "AA=="}], "tokens": [name]}
    page = view_page([bundle], None, record)
    body, script = page.rsplit('<script type="application/json" id="attention">', 1)
    assert "<script" not in body
    data, rest = script.split("</script>", 1)
    assert json.loads(data) == record
    assert rest.count("<script") == 1  # The page's own.
    assert not re.search(r"""(src|href)=|url\(|@import""", page)


def test_gains_are_those_of_the_command_sensitivity(tmp_path):
    rows = [{"weight": "", "score": None, "agreement": 0.5}, {"weight": "a", "score": None, "agreement": 0.75}]
    (tmp_path / "figures.json").write_text(json.dumps({"quantize": "int8", "rows": rows}))
    assert read_gains(tmp_path / "figures.json") == Gains("agreement", "int8", 0.5, {"a": 0.25})
    (tmp_path / "other.json").write_text('{"rows": []}')
    with pytest.raises(ExportError, match="was not written by keras-transformer sensitivity --json"):
        read_gains(tmp_path / "other.json")


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    keras.utils.set_random_seed(0)
    model = models.ViT(models.Size(2, 8, 2, 16), patch_size=4, image_size=8, num_channels=1)
    model.save(folder / "model.keras")
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 1)).astype("float32")
    np.save(folder / "images.npy", images)
    return folder, model, images


def test_attention_is_that_of_the_model(vit):
    folder, model, images = vit
    record = attention_record(folder / "model.keras", str(folder / "images.npy"))
    expected = attention.attention_maps(model)(images[:1])
    assert [each["layer"] for each in record["maps"]] == list(expected)
    for each, scores in zip(record["maps"], expected.values(), strict=True):
        levels = np.frombuffer(base64.b64decode(each["scores"]), "uint8").reshape(each["shape"])
        np.testing.assert_allclose(levels / 255 * each["largest"], np.asarray(scores)[0], atol=each["largest"] / 500)
    assert record["grid"] == [2, 2, 1]
    pixels = np.frombuffer(base64.b64decode(record["image"]["pixels"]), "uint8").reshape(8, 8, 1)
    np.testing.assert_allclose(pixels, images[0], atol=0.51)


def test_attention_needs_what_it_names(vit, tmp_path):
    folder, _, _ = vit
    with pytest.raises(ExportError, match="no such file"):
        attention_record(tmp_path / "none.keras", "a text")
    with pytest.raises(ExportError, match="the bundle has no tokenizer"):
        attention_record(folder / "model.keras", "a text")
    np.savez(tmp_path / "other.npz", other=np.ones((1, 2)))
    with pytest.raises(ExportError, match="has no images: the model takes images"):
        attention_record(folder / "model.keras", str(tmp_path / "other.npz"))
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    plain.save(tmp_path / "plain.keras")
    np.save(tmp_path / "plain.npy", np.ones((1, 2)))
    with pytest.raises(ExportError, match="no attention scores"):
        attention_record(tmp_path / "plain.keras", str(tmp_path / "plain.npy"))


def test_the_server_answers_this_machine_only(bundle):
    text = view_page([bundle])
    with page_server(text) as server:
        assert server.server_address[0] == "127.0.0.1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        with urllib.request.urlopen(address) as answer:
            assert answer.read().decode() == text
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        for path, host, status in (("other", None, 404), ("", "example.com:80", 403)):
            request = urllib.request.Request(address + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            assert refused.value.code == status
        server.shutdown()


def test_the_command_writes_the_page(bundle, tmp_path, capsys):
    assert main.main(["view", str(bundle), "--output", str(tmp_path / "view.html")]) == 0
    assert (tmp_path / "view.html").read_text() == view_page([bundle])
    assert capsys.readouterr().out == f"{tmp_path / 'view.html'}\n"
    assert main.main(["view", str(bundle), "--model", "model.keras"]) == 1
    assert capsys.readouterr().err == (
        "keras-transformer: error: attention needs both --model and --input (keras-transformer explain exporterror)\n"
    )


def test_the_command_serves_until_it_is_interrupted(bundle):
    command = [sys.executable, "-m", "keras_transformer.export.commands.main", "view", str(bundle), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with urllib.request.urlopen(process.stdout.readline().strip()) as answer:
        assert answer.read().decode() == view_page([bundle])
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "Ctrl+C ends it\n")
    assert process.returncode == 0
