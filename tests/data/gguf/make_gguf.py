"""Makes the GGUF files of this folder, with what transformers computes from the checkpoints that they were made from.

    python make_gguf.py LLAMA_CPP    # a clone of llama.cpp, whose converter writes the files

Needs torch, transformers and sentencepiece. The models are small and have random weights; settings are away from the
defaults as far as a GGUF file can say so.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import conversion  # noqa: E402
import gguf  # noqa: E402
from conversion import base  # noqa: E402

HERE = pathlib.Path(__file__).parent
WORDS = 96
# Folders of tests/data/tokenizers, the class, and the name that the converter gives to the way in which text is split.
VOCABULARIES = {
    "llama.vocab": ("llama_old", "LlamaForCausalLM", None),
    "gemma.vocab": ("gemma_old", "GemmaForCausalLM", None),
    "t5.vocab": ("t5_old", "T5ForConditionalGeneration", None),
    "gpt2.vocab": ("gpt2", "GPT2LMHeadModel", "gpt-2"),
    "qwen2.vocab": ("qwen2", "Qwen2ForCausalLM", "qwen2"),
    "bert.vocab": ("bert_old", "BertModel", "bert"),
}
DECODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 48,
    "rms_norm_eps": 0.003,
    "bos_token_id": 4,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 3.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 700.0, "factor": 3.0}
LOCAL = {"rope_type": "default", "rope_theta": 300.0}
T5 = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "layer_norm_epsilon": 0.002,
    "decoder_start_token_id": 0,
    "n_positions": 40,
}
BERT = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
    "type_vocab_size": 3,
    "layer_norm_eps": 0.004,
}
GPT2 = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48, "layer_norm_epsilon": 0.004}
# Name: the class, its settings, and the type of the tensors.
CASES = {
    "llama": ("Llama", DECODER | {"rope_parameters": LLAMA3, "tie_word_embeddings": False}, "ALL_F32"),
    "llama_yarn": (
        "Llama",
        DECODER | {"rope_parameters": YARN, "attention_bias": True, "mlp_bias": True},
        "MOSTLY_F16",
    ),
    "llama_linear": ("Llama", DECODER | {"rope_parameters": LINEAR, "tie_word_embeddings": True}, "MOSTLY_Q8_0"),
    "mistral": ("Mistral", DECODER | {"head_dim": 16, "sliding_window": None}, "MOSTLY_BF16"),
    "qwen2": ("Qwen2", DECODER | {"rope_theta": 2000.0}, "ALL_F32"),
    "qwen3": ("Qwen3", DECODER | {"head_dim": 16, "tie_word_embeddings": True}, "ALL_F32"),
    "gemma": ("Gemma", DECODER | {"head_dim": 16}, "ALL_F32"),
    "gemma2": ("Gemma2", DECODER | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}, "ALL_F32"),
    "gemma3": (
        "Gemma3",
        DECODER
        | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5, "num_hidden_layers": 7}
        | {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": LOCAL}},
        "MOSTLY_F16",
    ),
    "gpt2": ("GPT2", GPT2, "ALL_F32"),
    "bert": ("Bert", BERT, "ALL_F32"),
    "bert_mean": ("Bert", BERT, "ALL_F32"),
    "t5": ("T5", T5 | {"tie_word_embeddings": True}, "ALL_F32"),
    "t5_gated": ("T5", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, "ALL_F32"),
}
CLASSES = {
    "Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    "GPT2": ("GPT2Config", "GPT2LMHeadModel"),
    "Bert": ("BertConfig", "BertModel"),
    "T5": ("T5Config", "T5ForConditionalGeneration"),
}


def model_of(name, settings):
    """A model of transformers with random weights."""
    config, model = CLASSES.get(name, (f"{name}Config", f"{name}ForCausalLM"))
    torch.manual_seed(sum(map(ord, name)) + len(settings))
    model = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    if settings.get("feed_forward_proj"):  # transformers ties the head of every T5, which version 1.1 does not.
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    with torch.no_grad():
        for label, weight in model.named_parameters():
            is_scale = (
                "norm" in label.lower() and label.endswith("weight") or ".ln_" in label and label.endswith("weight")
            )
            weight.copy_(torch.randn_like(weight) * (0.2 if is_scale else 0.15) + (1.0 if is_scale else 0.0))
    return model


def arrays_of(model):
    """Inputs and the outputs of transformers."""
    random = np.random.default_rng(0)
    token_ids = random.integers(5, WORDS, (2, 20))
    mask = np.arange(20) < np.array([[20], [13]])
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    tensors = {"input_ids": torch.tensor(token_ids), "attention_mask": torch.tensor(mask.astype("int64"))}
    if model.config.model_type == "bert":
        inputs["segment_ids"] = random.integers(0, 3, (2, 20))
        tensors["token_type_ids"] = torch.tensor(inputs["segment_ids"])
    if model.config.model_type == "t5":
        target = random.integers(5, WORDS, (2, 7))
        inputs = {f"source_{key}": value for key, value in inputs.items()}
        inputs |= {"target_token_ids": target, "target_padding_mask": np.ones((2, 7), bool)}
        tensors["decoder_input_ids"] = torch.tensor(target)
    with torch.no_grad():
        found = model(**tensors)
    outputs = found.last_hidden_state if model.config.model_type == "bert" else found.logits
    return {**{f"input/{key}": value for key, value in inputs.items()}, "output": outputs.float().numpy()}


def convert(folder, file, kind, with_vocabulary):
    """Writes a folder as a GGUF file, by llama.cpp."""
    settings = base.ModelBase.load_hparams(folder, False)
    converter = conversion.get_model_class(settings["architectures"][0])
    original = converter.set_vocab
    if not with_vocabulary:
        converter.set_vocab = lambda self: None
    try:
        converter(folder, getattr(gguf.LlamaFileType, kind), file).write()
    finally:
        converter.set_vocab = original


def make(name):
    """One file, and its arrays."""
    kind, settings, dtype = CASES[name]
    model = model_of(kind, settings)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder)
        tensors = {label: weight.contiguous() for label, weight in model.state_dict().items()}
        save_file(unique(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        if name == "gpt2":  # The converter wants the name of the first version.
            config["n_ctx"] = config["n_positions"]
        if name == "gemma3":  # It counts tokens, to remove rows without one; and these settings are not Gemma 3's.
            vocabulary = {"model": {"vocab": {str(index): index for index in range(WORDS)}}, "added_tokens": []}
            (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
        if name == "bert_mean":
            add_pooling(folder)
        (folder / "config.json").write_text(json.dumps(config))
        if dtype != "ALL_F32":  # What transformers computes with the weights that the file has.
            model = rounded(folder, model, dtype)
        convert(folder, HERE / f"{name}.gguf", dtype, False)
        arrays = arrays_of(model)
        if name == "bert_mean":
            mask = arrays["input/padding_mask"][..., None]
            arrays["output"] = (arrays["output"] * mask).sum(1) / mask.sum(1)
        np.savez_compressed(HERE / f"{name}.npz", **arrays)


def add_pooling(folder):
    """Makes a folder one of sentence-transformers, with the mean of the tokens."""
    modules = [
        {"path": "", "type": "Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))


def unique(tensors):
    """The tensors, each under its first name."""
    names = {tensor.data_ptr(): name for name, tensor in reversed(tensors.items())}
    return {name: tensor for name, tensor in tensors.items() if names[tensor.data_ptr()] == name}


def rounded(folder, model, dtype):
    """The model with weights as they are stored."""
    kind = {"MOSTLY_F16": "F16", "MOSTLY_BF16": "BF16", "MOSTLY_Q8_0": "Q8_0"}[dtype]
    kind = gguf.GGMLQuantizationType[kind]
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                stored = gguf.quants.quantize(weight.numpy(), kind)
                weight.copy_(torch.tensor(gguf.quants.dequantize(stored, kind).reshape(weight.shape)))
    return model


def make_vocabulary(name):
    """A file with a tokenizer alone."""
    source, head, words = VOCABULARIES[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(HERE.parent / "tokenizers" / source)
    with tempfile.TemporaryDirectory() as folder:
        folder = shutil.copytree(HERE.parent / "tokenizers" / source, pathlib.Path(folder), dirs_exist_ok=True)
        rows = len(tokenizer) + (
            0 if name == "t5.vocab" else 28
        )  # T5's sentinels are counted by the rows that are left.
        config = DECODER | T5 | {"architectures": [head], "n_layer": 2, "vocab_size": rows}
        config = {key: value for key, value in config.items() if not key.endswith("_token_id")}
        (folder / "config.json").write_text(json.dumps(config | {"model_type": name.removesuffix(".vocab")}))
        base.TextModel.get_vocab_base_pre = lambda self, tokenizer: words
        converter = conversion.get_model_class(head)(folder, gguf.LlamaFileType.ALL_F32, HERE / f"{name}.gguf")
        converter.prepare_metadata = lambda vocab_only: converter.set_vocab()
        converter.write_vocab()


if __name__ == "__main__":
    for each in sys.argv[2:] or [*CASES, *VOCABULARIES]:
        (make if each in CASES else make_vocabulary)(each)
        print(each)
