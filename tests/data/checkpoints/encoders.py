"""What the makers of encoder checkpoints share."""

import numpy as np
import transformers
from writing import build, gradients, ragged_tokens, run, write

LOGITS = {"logits": "logits"}
SPAN = {"start_logits": "start_logits", "end_logits": "end_logits"}
TOKENS = {"output": "last_hidden_state"}
POOLED = {"tokens": "last_hidden_state", "pooled": "pooler_output"}


def make(
    name,
    cls,
    config,
    outputs,
    *,
    segments=False,
    boxes=False,
    global_tokens=False,
    labels=3,
    lengths=(11, 7, 1),
    repair=None,
    gradients_of=(),
    real_tokens=False,
    left=False,
):
    """Writes the folder `name` with the class `cls` of transformers.

    Args:
        name: str.
        cls: str.
        config: a config of transformers.
        outputs: dict from our name of an output to transformers'.
        segments: bool. Whether it reads segments.
        boxes: bool. Whether it reads where on its page a word stands.
        global_tokens: bool. Whether it reads which tokens are global: the first, and some others.
        labels: int.
        lengths: tuple of ints.
        repair: function of the model with its random weights, which changes it.
        gradients_of: names of the parameters whose gradients are stored, too.
        real_tokens: bool. Whether only the logits of real tokens have gradients.
        left: bool. Whether rows are padded on the left.
    """
    config.num_labels = labels
    token_ids, mask = ragged_tokens(config.vocab_size, lengths)
    if left:
        token_ids, mask = token_ids[:, ::-1], mask[:, ::-1]
    if token_ids.min() == 0 and config.pad_token_id:
        token_ids = np.where(mask, token_ids, config.pad_token_id).astype("int32")
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    if segments:
        inputs["segment_ids"] = (
            np.minimum(np.arange(token_ids.shape[1]) // 4, config.type_vocab_size - 1) * mask
        ).astype("int32")
    if boxes:
        ends = np.random.default_rng(1).integers(0, config.max_2d_position_embeddings, (2, 2, *token_ids.shape))
        inputs["boxes"] = np.concatenate(np.sort(ends, axis=0)).transpose(1, 2, 0).astype("int32")
    if global_tokens:
        marked = np.random.default_rng(2).random(mask.shape) < 0.2
        inputs["global_mask"] = (marked | (np.arange(mask.shape[1]) == 0)) & mask
    if cls.endswith("MultipleChoice"):
        # The choices of one question: the rows as they are, and the rows backwards.
        inputs = {key: np.stack([array, array[::-1]], axis=1) for key, array in inputs.items()}
    names = {
        "boxes": "bbox",
        "global_mask": "global_attention_mask",
        "token_ids": "input_ids",
        "padding_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    model = build(getattr(transformers, cls), config)
    if repair is not None:
        repair(model)
    theirs = {names[key]: array.astype("int64") for key, array in inputs.items()}
    found = run(model, **theirs)
    more = gradients(model, gradients_of, theirs, mask[:, :, None] if real_tokens else None) if gradients_of else {}
    write(name, model, inputs, {our: found[their] for our, their in outputs.items()}, **more)
