"""Makes the folders bert-*: python tests/data/checkpoints/make_bert.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, POOLED, SPAN, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "hidden_act": "silu",
}
OUTPUTS = {
    "Model": POOLED,
    "ForMaskedLM": LOGITS,
    "ForPreTraining": {"logits": "prediction_logits", "sentence_logits": "seq_relationship_logits"},
    "ForNextSentencePrediction": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}

GRADIENTS = (
    "bert.embeddings.word_embeddings.weight",
    "bert.embeddings.position_embeddings.weight",
    "bert.embeddings.token_type_embeddings.weight",
    "bert.encoder.layer.0.attention.self.query.weight",
    "bert.encoder.layer.0.attention.self.value.bias",
    "bert.encoder.layer.1.attention.output.dense.weight",
    "bert.encoder.layer.1.output.dense.weight",
    "bert.encoder.layer.0.output.LayerNorm.weight",
    "classifier.weight",
)


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        config = transformers.BertConfig(**CONFIG)
        name = f"bert-{ending.removeprefix('For')}"
        wanted = GRADIENTS if ending == "ForSequenceClassification" else ()
        make(name, f"Bert{ending}", config, outputs, segments=True, labels=labels, gradients_of=wanted)


if __name__ == "__main__":
    main()
