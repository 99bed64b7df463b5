"""What the `make_*.py` of encoder-decoders share: ragged sources and targets under our names, and greedy answers."""

import numpy as np
import torch
import transformers
from writing import build, ragged_tokens, run, write

NAMES = {
    "source_token_ids": "input_ids",
    "source_padding_mask": "attention_mask",
    "target_token_ids": "decoder_input_ids",
    "target_padding_mask": "decoder_attention_mask",
}
NEW_TOKENS = 8


def source_and_target(vocabulary_size, source_lengths=(11, 7, 1), target_lengths=(4, 9, 6)):
    """Two dicts of arrays under the names of our inputs."""
    return tuple(
        dict(
            zip(
                (f"{side}_token_ids", f"{side}_padding_mask"),
                ragged_tokens(vocabulary_size, lengths, seed),
                strict=True,
            )
        )
        for seed, (side, lengths) in enumerate((("source", source_lengths), ("target", target_lengths)))
    )


def inputs_of(*sides):
    """The same under transformers' names."""
    arrays = {name: array for side in sides for name, array in side.items()}
    found = {NAMES[name]: array.astype("int64") for name, array in arrays.items() if name in NAMES}
    if "features" in arrays:  # There a frame is a column.
        found["input_features"] = arrays["features"].transpose(0, 2, 1)
    return found


def build_speaking(cls, config, source, own_head=None, bias=False, first_seed=0):
    """A model whose greedy answers to `source` vary and do not end, and these: `(model, arrays of expected.npz)`.

    `own_head` names a head that is tied to the embedding, and shall not be; `bias` says that there is a bias of the logits,
    which begins as zeros.
    """
    best = (1, None, None)
    for attempt in range(72):
        # Weights of several volumes are tried: loud ones drown what was read. In the end less is asked for.
        if best[0] >= 4 - attempt // 24:
            break
        model = _random_model(cls, config, first_seed + attempt, own_head, bias)
        answers = _answers(model, source)
        speaks = answers.shape[1] == NEW_TOKENS
        speaks = speaks and not np.isin(answers, [config.eos_token_id, config.pad_token_id]).any()
        variety = min(len(set(row.tolist())) for row in answers) if speaks else 0
        if variety > best[0]:
            best = (variety, model, answers)
    variety, model, answers = best
    assert variety >= 2, f"No weights let {cls.__name__} speak."
    prompt = source.get("features")
    if prompt is None:
        prompt = np.where(source["source_padding_mask"], source["source_token_ids"], -1)
    return model, {"prompt": prompt, "generated": answers}


def _random_model(cls, config, seed, own_head, bias):
    """A tied head says again what it has read, unless positions and blocks say more than the token does."""
    model = build(cls, config, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "shared" in name or "embed_tokens" in name:
                parameter.mul_((0.1 if getattr(config, "scale_embedding", False) else 0.4) / parameter.std())
            elif "embed_positions" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))
            elif parameter.ndim == 2:
                parameter.add_(0.2 * (seed % 4 + 4 * (seed // 24)) * torch.randn_like(parameter))
        if bias:
            model.final_logits_bias.add_(0.1 * torch.randn_like(model.final_logits_bias))
            # These two would end the answer; one of them it begins with.
            model.final_logits_bias[:, [config.eos_token_id, config.pad_token_id]] = -20.0
        if own_head:
            head = model.get_submodule(own_head)
            head.weight = torch.nn.Parameter(0.5 * torch.randn_like(head.weight))
            model.all_tied_weights_keys.pop(f"{own_head}.weight", None)
    return with_sines(model)


def with_sines(model):
    """The model, with tables of sines, where it has any, as they were: no file holds them."""
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "create_weight"):
                module.weight.copy_(module.create_weight())
    return model


def _answers(model, source):
    """The greedy answers, without the token that every decoder text begins with."""
    model.generation_config.forced_eos_token_id = None
    inputs = {name: torch.tensor(array) for name, array in inputs_of(source).items()}
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    with torch.no_grad():
        # The plain greedy loop: Whisper has one of its own around it, for pieces of 30 seconds.
        return transformers.GenerationMixin.generate(model, **inputs, **options)[:, 1:].numpy()


def write_classifiers(config_class, config, source):
    """The folders of the heads that read a text twice; each text ends with the token by which they find its last one."""
    kind = config_class.__name__.removesuffix("Config")
    tokens, mask = source["source_token_ids"].copy(), source["source_padding_mask"]
    tokens[np.arange(len(tokens)), mask.sum(axis=1) - 1] = config["eos_token_id"]
    outputs = {"SequenceClassification": ("logits",), "QuestionAnswering": ("start_logits", "end_logits")}
    for head, names in outputs.items():
        labels = 2 if head == "QuestionAnswering" else 3
        model = build(getattr(transformers, f"{kind}For{head}"), config_class(**{**config, "num_labels": labels}))
        found = run(model, input_ids=tokens.astype("int64"), attention_mask=mask.astype("int64"))
        inputs = {"token_ids": tokens, "padding_mask": mask}
        write(f"{kind.lower()}-{head}", model, inputs, {name: found[name] for name in names})
