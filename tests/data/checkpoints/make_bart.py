"""Makes the folders bart-*, mbart-*, marian-*, pegasus-*: python tests/data/checkpoints/make_bart.py.

transformers 5.23, torch 2.13.
"""

import transformers
from seq2seq import build_speaking, inputs_of, source_and_target, with_sines, write_classifiers
from writing import build, run, write

CONFIG = {
    "vocab_size": 60,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 20,
    "activation_function": "relu",
    "num_labels": 3,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    # It would end every answer.
    "forced_eos_token_id": None,
}
MARIAN = {
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 59,
    "eos_token_id": 0,
    "decoder_start_token_id": 59,
}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 52, "decoder_start_token_id": 51}


def main():
    source, target = source_and_target(50)
    write_generation("bart", "BartForConditionalGeneration", source, target, scale_embedding=True)
    write_generation("mbart", "MBartForConditionalGeneration", source, target, scale_embedding=True)
    write_generation("marian", "MarianMTModel", source, target, **MARIAN)
    write_generation("marian-separate", "MarianMTModel", source, target, **{**MARIAN, **SEPARATE, "pad_token_id": 51})
    write_generation("pegasus", "PegasusForConditionalGeneration", source, target, **{**MARIAN, "eos_token_id": 1})
    for kind, options in {"Bart": {}, "MBart": {}, "Marian": MARIAN, "Pegasus": MARIAN}.items():
        model = with_sines(build(getattr(transformers, f"{kind}Model"), config_of(kind, **options)))
        found = run(model, **inputs_of(source, target))
        write(f"{kind.lower()}-Model", model, {**source, **target}, {"tokens": found["last_hidden_state"]})
    write_classifiers(transformers.BartConfig, CONFIG, source)


def config_of(kind, **options):
    return getattr(transformers, f"{kind}Config")(**{**CONFIG, **options})


def write_generation(name, cls, source, target, **options):
    kind, _, head = cls.partition("For") if "For" in cls else (cls.removesuffix("MTModel"), "", "MTModel")
    model, answers = build_speaking(getattr(transformers, cls), config_of(kind, **options), source, bias=True)
    found = run(model, **inputs_of(source, target))
    write(f"{name}-{head}", model, {**source, **target}, {"logits": found["logits"]}, **answers)


if __name__ == "__main__":
    main()
