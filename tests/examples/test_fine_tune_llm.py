"""The example of fine-tuning a chat model, on a small checkpoint of random numbers and dialogues that this file makes up."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_transformer.text import BytePair

pytestmark = pytest.mark.exhaustive

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CONLL = "the\tO\ncat\tB-person\nsat\tO\n\non\tO\nmat\tB-location\nmats\tI-location\n\nno\tO\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder of a Llama of one layer with a tokenizer and a chat template."""
    folder, width, hidden = tmp_path_factory.mktemp("checkpoint"), 16, 24
    words = BytePair.train(["the cat sat on the mat and the dog sat on the cat"], 290)
    (folder / "tokenizer.json").write_bytes(words._files()["tokenizer.json"])
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"})
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": words.vocabulary_size,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": words.end_id,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"embed_tokens": (words.vocabulary_size, width), "norm": (width,)}
    for name, shape in {
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (width // 2, width),
        "self_attn.v_proj": (width // 2, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (hidden, width),
        "mlp.up_proj": (hidden, width),
        "mlp.down_proj": (width, hidden),
    }.items():
        shapes[f"layers.0.{name}"] = shape
    random = np.random.default_rng(0)
    tensors = {f"model.{name}.weight": random.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def finished(checkpoint, tmp_path_factory, run_example):
    out, file = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("data") / "chats.jsonl"
    dialogues = [
        [{"role": "user", "content": f"the {word}?"}, {"role": "assistant", "content": "on the mat"}]
        for word in ("cat", "dog", "mat") * 8
    ]
    file.write_text("\n".join(json.dumps({"messages": each}) for each in dialogues))
    options = ["--checkpoint", checkpoint, "--data", file, "--out", out, "--updates", 40, "--reports", 2]
    return out, run_example("fine_tune_llm", *options, "--length", 64, "--learning-rate", 0.05, "--recompute", 1)


def test_the_held_out_loss_falls_and_the_bundle_answers_as_the_model(finished):
    out, printed = finished
    history = json.loads((out / "history.json").read_text())
    assert f"held-out loss before: {history['before']:.3f}" in printed
    assert history["val_loss"][-1] < history["before"] - 1
    answers = json.loads((out / "answers.json").read_text())
    assert answers["after"] == answers["onnx"]
    assert answers["after"] != answers["before"]
    assert len(answers["after"]) == len(answers["questions"]) == 2


def test_leaves_adapters_curve_and_bundle(finished):
    names = {path.name for path in finished[0].iterdir()}
    assert {"adapter.safetensors", "peft", "history.json", "curve.png", "answers.json", "bundle"} <= names


def test_entities_become_dialogues(example_module, tmp_path):
    (tmp_path / "file.conll").write_text(CONLL)
    chats = [each["messages"] for each in example_module("fine_tune_llm").entity_chats(tmp_path / "file.conll")]
    assert [each[1]["content"] for each in chats] == ["the cat sat", "on mat mats"]
    assert [json.loads(each[2]["content"]) for each in chats] == [{"person": ["cat"]}, {"location": ["mat mats"]}]


def test_test_needs_data(run_example, checkpoint, capsys):
    with pytest.raises(SystemExit):
        run_example("fine_tune_llm", "--checkpoint", checkpoint, "--test", "file")
    assert "--test requires --data" in capsys.readouterr().err
