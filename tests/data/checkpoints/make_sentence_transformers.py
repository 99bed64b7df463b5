"""Makes the folders sentence-*: python tests/data/checkpoints/make_sentence_transformers.py (sentence-transformers 6.2,
transformers 5.23, torch 2.13).

One folder is as that version writes it; the other has the settings of the versions before 5.3, under which most published
models lie.
"""

import json
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from writing import HERE, build, ragged_tokens

SIZE = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, "hidden_act": "silu"}
MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def main():
    bert = transformers.BertConfig(**SIZE, num_attention_heads=2, max_position_embeddings=20, type_vocab_size=3)
    # The older settings have the poolings in this order.
    make("sentence-bert", build(transformers.BertModel, bert), ("cls", "max", "mean", "lasttoken"), normalize=True)
    to_older_settings(HERE / "sentence-bert", ("cls_token", "max_tokens", "mean_tokens", "lasttoken"))
    places = {"max_position_embeddings": 15, "pad_token_id": 2, "type_vocab_size": 1}
    roberta = transformers.RobertaConfig(**SIZE, **places, num_attention_heads=4)
    make("sentence-roberta", build(transformers.RobertaModel, roberta), ("lasttoken", "max"), normalize=False)


def make(name, model, pooling, normalize):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{index}" for index in range(55))]
        (pathlib.Path(folder) / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        transformers.BertTokenizerFast(str(pathlib.Path(folder) / "vocab.txt")).save_pretrained(folder)
        modules = [Transformer(folder), Pooling(SIZE["hidden_size"], pooling), *([Normalize()] if normalize else [])]
        sentence = SentenceTransformer(modules=modules, device="cpu").eval()
    token_ids, mask = ragged_tokens(SIZE["vocab_size"])
    token_ids = np.where(mask, token_ids, model.config.pad_token_id).astype("int32")
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    features = {"input_ids": torch.tensor(token_ids).long(), "attention_mask": torch.tensor(mask).long()}
    if model.config.type_vocab_size > 1:
        inputs["segment_ids"] = (np.minimum(np.arange(token_ids.shape[1]) // 4, 2) * mask).astype("int32")
        features["token_type_ids"] = torch.tensor(inputs["segment_ids"]).long()
    with torch.no_grad():
        found = sentence(features)["sentence_embedding"].numpy()
    sentence.save(str(HERE / name), create_model_card=False)
    arrays = {f"input/{key}": array for key, array in inputs.items()} | {"output/embedding": found}
    np.savez_compressed(HERE / name / "expected.npz", **arrays)
    print(name, found.shape)


def to_older_settings(folder, modes):
    settings = {"word_embedding_dimension": SIZE["hidden_size"], "include_prompt": True}
    settings |= {f"pooling_mode_{name}": name in modes for name in MODES}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings, indent=2))
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2))
    (folder / "2_Normalize" / "config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
