"""Writes `beam_search.npz`: what `generate(num_beams=...)` of transformers finds with a model that is a table.

Needs torch and transformers; run from the root of the repository: `python tests/data/make_beam_search.py`.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import torch
import transformers

VOCABULARY_SIZE, END_ID, NEW_TOKENS = 12, 0, 7
PROMPTS = [[3, 5], [1, 1], [11, 2], [7, 4], [6, 9], [2, 8]]
NUM_BEAMS = (2, 3, 5)
LENGTH_PENALTIES = (-1.0, 0.0, 0.6, 1.0, 2.0)
EARLY_STOPPING = (False, True, "never")


class TableModel(transformers.PreTrainedModel, transformers.GenerationMixin):
    """The logits of the next token are looked up by the last two."""

    config_class = transformers.PretrainedConfig

    def __init__(self, table):
        super().__init__(transformers.PretrainedConfig(vocab_size=len(table), is_encoder_decoder=False))
        self.table = torch.nn.Parameter(torch.tensor(table))

    def forward(self, input_ids, **kwargs):
        return transformers.modeling_outputs.CausalLMOutput(logits=self.table[input_ids[:, -2:-1], input_ids[:, -1:]])


def search(model, num_beams, length_penalty, early_stopping):
    """Tokens `(prompts, beams, NEW_TOKENS)`, -1 behind the end, and scores `(prompts, beams)`."""
    tokens = np.full((len(PROMPTS), num_beams, NEW_TOKENS), -1, "int8")
    scores = np.zeros((len(PROMPTS), num_beams), "float32")
    for number, prompt in enumerate(PROMPTS):
        found = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=num_beams,
            num_return_sequences=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=END_ID,
            pad_token_id=-1,
            do_sample=False,
            use_cache=False,
            output_scores=True,
            return_dict_in_generate=True,
        )
        for place, sequence in enumerate(found.sequences[:, len(prompt) :].tolist()):
            length = sequence.index(END_ID) + 1 if END_ID in sequence else len(sequence)
            tokens[number, place, :length] = sequence[:length]
        scores[number] = found.sequences_scores.detach()
    return tokens, scores


def main():
    # Steep enough that beams differ from greedy, with an end token that comes at different times.
    table = np.random.default_rng(3).normal(size=(VOCABULARY_SIZE,) * 3).astype("float32") * 2
    table[:, :, END_ID] += 1
    model = TableModel(table)
    arrays = {}
    for num_beams in NUM_BEAMS:
        found = [search(model, num_beams, *case) for case in itertools.product(LENGTH_PENALTIES, EARLY_STOPPING)]
        arrays[f"tokens/{num_beams}"], arrays[f"scores/{num_beams}"] = map(np.stack, zip(*found, strict=True))
    config = {"transformers": transformers.__version__, "torch": torch.__version__, "end_id": END_ID}
    np.savez_compressed(
        Path(__file__).with_name("beam_search.npz"),
        config=json.dumps(config),
        notes=f"logits = table[last but one, last]; first axis: product of {LENGTH_PENALTIES} and {EARLY_STOPPING}",
        table=table,
        prompts=np.array(PROMPTS, "int32"),
        **arrays,
    )


if __name__ == "__main__":
    main()
