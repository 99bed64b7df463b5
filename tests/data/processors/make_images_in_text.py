"""Makes the folder kosmos2: python tests/data/processors/make_images_in_text.py (transformers 5, no torch).

A small tokenizer with the tags of Kosmos-2, an image processor of small pictures, and in `expected.json` what
`Kosmos2Processor` makes of texts with one image each.
"""

import json
import pathlib
import shutil

import numpy as np
import transformers

HERE = pathlib.Path(__file__).parent
NUM_IMAGE_TOKENS = 3
TEXTS = [
    "<grounding> an image of",
    "the king.",
    "<grounding><phrase> a king</phrase><object><patch_index_0002></object>",
]
LETTERS = "\u2581abcdefghijklmnopqrstuvwxyz.,"
WORDS = ("\u2581an", "\u2581image", "\u2581of", "\u2581the", "ing", "\u2581a")


def main():
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [*special, *((letter, -8.0) for letter in LETTERS), *((word, -3.0) for word in WORDS)]
    tokenizer = transformers.XLMRobertaTokenizer(vocab=pieces)
    size = {"height": 12, "width": 12}
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 12}, crop_size=size)
    processor = transformers.Kosmos2Processor(images, tokenizer, num_patch_index_tokens=4)
    pictures = [np.zeros((15, 20, 3), "uint8") for _ in TEXTS]
    found = processor(images=pictures, text=TEXTS, padding=True, num_image_tokens=NUM_IMAGE_TOKENS)
    folder = HERE / "kosmos2"
    shutil.rmtree(folder, ignore_errors=True)
    processor.save_pretrained(folder)
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "places": "image_embeds_position_mask"}
    expected = {ours: np.array(found[theirs]).tolist() for ours, theirs in names.items()}
    content = {"texts": TEXTS, "num_image_tokens": NUM_IMAGE_TOKENS, **expected}
    (folder / "expected.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
