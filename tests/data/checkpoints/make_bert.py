"""Makes the folders bert-*: python tests/data/checkpoints/make_bert.py (transformers 5.23, torch 2.13)."""

import numpy as np
import transformers
from writing import build, ragged_tokens, run, write

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
OUTPUTS = {
    "Model": {"tokens": "last_hidden_state", "pooled": "pooler_output"},
    "ForMaskedLM": {"logits": "logits"},
    "ForSequenceClassification": {"logits": "logits"},
    "ForTokenClassification": {"logits": "logits"},
    "ForQuestionAnswering": {"start_logits": "start_logits", "end_logits": "end_logits"},
}


def main():
    token_ids, mask = ragged_tokens(CONFIG["vocab_size"])
    segment_ids = np.where(np.arange(token_ids.shape[1]) > 3, 1, 0) * mask
    for ending, names in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        model = build(getattr(transformers, f"Bert{ending}"), transformers.BertConfig(**CONFIG, num_labels=labels))
        found = run(model, input_ids=token_ids, attention_mask=mask, token_type_ids=segment_ids)
        inputs = {"token_ids": token_ids, "padding_mask": mask, "segment_ids": segment_ids.astype("int32")}
        write(f"bert-{ending.removeprefix('For')}", model, inputs, {our: found[their] for our, their in names.items()})


if __name__ == "__main__":
    main()
