"""The engine over bundles returns the texts of `generate` in each runtime; requests and errors of `serve-text`."""

import sys

import pytest
from variants import exhaustive_but

from keras_transformer.export import load
from keras_transformer.export.commands import main as cli
from keras_transformer.generation import Engine, EngineClosedError, GenerationError, Random
from keras_transformer.version import install_command

PROMPTS = ["Grüße", "a", "To be, or not", "To be, or to", "xyz"]


@pytest.mark.parametrize("backend, num_blocks", [("onnx", 200), ("onnx", 7), ("tflite", 200), ("saved_model", 200)])
def test_texts_are_those_of_generate(language, backend, num_blocks):
    model = load(language.bundle("gpt"), backend)
    samplers = ["greedy", Random(top_k=8)]
    asks = [
        (prompt, {"seed": seed, "sampler": samplers[seed % 2], "max_new_tokens": 9})
        for seed, prompt in enumerate(PROMPTS)
    ]
    expected = [model.generate(prompt, **options) for prompt, options in asks]
    assert len(set(expected)) > 3
    with Engine(model, max_batch_size=3, num_blocks=num_blocks, block_size=4, chunk_size=5).warm_up() as engine:
        requests = [engine.submit(prompt, **options) for prompt, options in asks]
        assert [request.result(60) for request in requests] == expected
        samples = engine.submit_samples("ab", 2, seed=1, sampler="random", max_new_tokens=5)
        found = [sample.result(60) for sample in samples]
    assert found == model.generate(["ab"] * 2, seed=1, sampler="random", max_new_tokens=5)
    assert engine.stats()["blocks_used"] == 0


@pytest.mark.parametrize("backend", ["onnx", "tflite", "saved_model"])
@pytest.mark.parametrize("name", exhaustive_but(("rwkv", "yoco", "recurrent_memory"), "rwkv"))
def test_states_give_the_texts_of_generate(language, name, backend):
    """States only, and with too few blocks for all; prompts of several windows and segments."""
    model = load(language.bundle(name), backend)
    asks = [([(7 * place + 3 * seed) % 256 for place in range(4 * seed + 1)], seed) for seed in range(5)]
    options = {"sampler": Random(top_k=8), "max_new_tokens": 7}
    expected = [model.generate(prompt, seed=seed, **options) for prompt, seed in asks]
    assert len(set(map(tuple, expected))) > 3
    with Engine(model, max_batch_size=3, num_blocks=9, block_size=4, chunk_size=5).warm_up() as engine:
        requests = [engine.submit(prompt, seed=seed, **options) for prompt, seed in asks]
        assert [request.result(60) for request in requests] == expected
        samples = engine.submit_samples(asks[2][0], 3, seed=1, **options)
        found = [sample.result(60) for sample in samples]
    assert found == model.generate([asks[2][0]] * 3, seed=1, **options)
    stats = engine.stats()
    assert (stats["blocks_used"], stats["states_used"], stats["states"], stats["prefix_tokens"]) == (0, 0, 3, 0)
    assert stats["blocks"] == (9 if name == "yoco" else 0)
    assert (stats["preemptions"] > 0) == (name == "yoco")


def test_int8_blocks_are_for_keras(language):
    with pytest.raises(GenerationError, match="serve the .keras file"):
        Engine(load(language.bundle("gpt")), quantize="int8")


def test_serve_text_serves_the_bundle(language, monkeypatch, capsys):
    application = pytest.importorskip("keras_transformer.export.serving.http_application")
    server = pytest.importorskip("keras_transformer.utils.http.server")
    engines, served, gateway = [], {}, application.engine_gateway

    def run(guard, host, port, on_start):
        on_start(f"http://{host}:{port}")
        (engine,) = engines
        served["text"] = engine.submit("ab", max_new_tokens=3).result(60)

    def gateway_of(engine, name, limits, access):
        engines.append(engine)
        served["name"] = name
        return gateway(engine, name, limits, access)

    monkeypatch.setattr(application, "engine_gateway", gateway_of)
    monkeypatch.setattr(server, "run_server", run)
    bundle = language.bundle("gpt")
    assert cli.main(["serve-text", str(bundle), "--port", "8123", "--blocks", "20", "--name", "mine"]) == 0
    assert served == {"text": load(bundle).generate("ab", max_new_tokens=3), "name": "mine"}
    assert "serving 'mine' at http://127.0.0.1:8123" in capsys.readouterr().err
    assert engines[0].stats()["blocks"] == 20
    with pytest.raises(EngineClosedError):
        engines[0].submit("ab")


def test_serve_text_says_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.delitem(sys.modules, "keras_transformer.utils.http.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["serve-text", str(tmp_path / "model.keras")]) == 1
    assert f"serve-text needs uvicorn: {install_command('serve')}" in capsys.readouterr().err


def test_serve_text_refuses_what_is_no_language_model(capsys, tmp_path):
    pytest.importorskip("starlette")
    assert cli.main(["serve-text", str(tmp_path / "absent.keras")]) == 1
    assert "absent.keras" in capsys.readouterr().err
    assert cli.main(["serve-text", str(tmp_path), "--max-batch-size", "0"]) == 2
