"""Makes the folders t5-* and mt5-*: python tests/data/checkpoints/make_t5.py (transformers 5.23, torch 2.13)."""

import transformers
from seq2seq import build_speaking, inputs_of, source_and_target, write_classifiers
from writing import build, run, write

CONFIG = {
    "vocab_size": 60,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9,
    "num_labels": 3,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
PLAIN = {"feed_forward_proj": "gelu"}


def main():
    source, target = source_and_target(CONFIG["vocab_size"])
    write_generation("t5-ConditionalGeneration", source, target)
    # The weights of the first seeds amplify rounding.
    write_generation("t5-1.1-ConditionalGeneration", source, target, first_seed=4, **V1_1)
    write_generation("mt5-ConditionalGeneration", source, target, kind="MT5", feed_forward_proj="gated-silu")
    for kind in ("T5", "MT5"):
        model = build(getattr(transformers, f"{kind}Model"), getattr(transformers, f"{kind}Config")(**CONFIG, **PLAIN))
        found = run(model, **inputs_of(source, target))
        write(f"{kind.lower()}-Model", model, {**source, **target}, {"tokens": found["last_hidden_state"]})
    write_classifiers(transformers.T5Config, {**CONFIG, **PLAIN}, source)
    write_encoder("T5EncoderModel", "last_hidden_state", source)
    write_encoder("MT5EncoderModel", "last_hidden_state", source)
    write_encoder("T5ForTokenClassification", "logits", source)


def write_encoder(cls, output, source):
    kind, head = ("MT5", cls[3:]) if cls.startswith("MT5") else ("T5", cls[2:])
    model = build(getattr(transformers, cls), getattr(transformers, f"{kind}Config")(**CONFIG, **V1_1))
    found = run(model, **inputs_of(source))
    inputs = {key.removeprefix("source_"): value for key, value in source.items()}
    write(f"{kind.lower()}-{head.removeprefix('For')}", model, inputs, {"output": found[output]})


def write_generation(name, source, target, kind="T5", first_seed=0, **options):
    # The head of version 1.1 is its own, which transformers 5 only knows when it reads one.
    own_head = "lm_head" if options else None
    config = getattr(transformers, f"{kind}Config")(**CONFIG, **options)
    cls = getattr(transformers, f"{kind}ForConditionalGeneration")
    model, answers = build_speaking(cls, config, source, own_head, first_seed=first_seed)
    found = run(model, **inputs_of(source, target))
    write(name, model, {**source, **target}, {"logits": found["logits"]}, **answers)


if __name__ == "__main__":
    main()
