"""Makes the folder qwen2_5_vl: python tests/data/processors/make_patches_in_text.py (transformers 5.24, torch 2.13).

A small tokenizer with the special tokens and the form of a chat of Qwen2.5-VL, an image processor of small pictures, and
what they make of messages with pictures: in `expected.json` the tokens, in `patches.npz` the patches. `Qwen2_5_VLProcessor`
needs torchvision for its videos; as there, the mark of an image is repeated for each of its tokens.
"""

import json
import pathlib
import shutil

import numpy as np
import transformers
from transformers.image_utils import load_image

HERE = pathlib.Path(__file__).parent
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The parts of a message of the user in each chat: text, and pictures.
CHATS = (("what is", "wide.png", "and", "tall.png"), ("palette.png", "a king"))
MOST = 1200


def messages(parts):
    content = [
        {"type": "image", "image": each} if each.endswith(".png") else {"type": "text", "text": each} for each in parts
    ]
    return [{"role": "system", "content": "be brief"}, {"role": "user", "content": content}]


def tokenizer():
    letters = sorted(set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW\u0120\u010a"))  # 60 tokens in all.
    vocabulary = {token: index for index, token in enumerate([*letters, "th", "in"])}
    found = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[("t", "h"), ("i", "n")])
    found.add_special_tokens({"additional_special_tokens": [*SPECIAL[1:], "<|video_pad|>"]})
    return found


def main():
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=4,
        size={"shortest_edge": 300, "longest_edge": MOST},
        image_mean=[0.4, 0.5, 0.6],
        image_std=[0.2, 0.3, 0.4],
        rescale_factor=1 / 200,
        resample=2,
    )
    folder = HERE / "qwen2_5_vl"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    texts = tokenizer()
    texts.chat_template = TEMPLATE
    texts.save_pretrained(folder)
    config = json.dumps(json.loads(images.to_json_string()), indent=1, sort_keys=True)
    (folder / "preprocessor_config.json").write_text(config + "\n")
    names = [name for parts in CHATS for name in parts if name.endswith(".png")]
    found = images([load_image(str(HERE / "pictures" / name)) for name in names], return_tensors="np")
    grid = found["image_grid_thw"][:, 1:]
    np.savez_compressed(folder / "patches.npz", patches=found["pixel_values"].astype("float32"), grid=grid, names=names)
    counts, rows = iter((grid.prod(axis=1) // 4).tolist()), []
    for parts in CHATS:
        text = texts.apply_chat_template(messages(parts), tokenize=False, add_generation_prompt=True)
        first, *rest = text.split("<|image_pad|>")
        rows.append(texts(first + "".join("<|image_pad|>" * next(counts) + each for each in rest))["input_ids"])
    expected = {"messages": [messages(parts) for parts in CHATS], "token_ids": rows}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
