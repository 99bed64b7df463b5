"""Small tasks of KerasHub that generate text, with random weights and tokenizers trained on the spot.

`keras_hub_texts.py` exports each, and the tests some. Presets cannot be downloaded everywhere: they are of this form.
"""

import inspect
import io
import json

import numpy as np
from keras_hub_arguments import ARGUMENTS, Part
from keras_hub_cases import built

LINES = (
    "The quick brown fox jumps over the lazy dog.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "A man with a dog walks in the park at night, and it is raining.",
    "Hello world, how are you today? I am fine, thank you!",
)
_LONGEST, _LENGTH = 128, 96
_PAIRS, _PIECES = 300, 400
_WINDOW = 8
# The special tokens of the families.
_OF_PAIRS = [
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<think>",
    "</think>",
]
_OF_PIECES = [
    "<start_of_turn>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<mask>",
    "[multimodal]",
    "<image_soft_token>",
    "<audio_soft_token>",
    "<start_of_image>",
    "<end_of_image>",
    "<start_of_audio>",
    "<end_of_audio>",
]
# Models that take images too, built for texts alone.
_TEXTS_ALONE = {"Gemma3Tokenizer": {"has_vision_tokens": False}, "Gemma4Tokenizer": {"has_vision_tokens": False}}


def classes():
    """The classes of KerasHub that generate text with a cache, by name; of two names for one class that of the class."""
    import keras_hub

    found = [each for each in vars(keras_hub.models).values() if inspect.isclass(each)]
    tasks = [each for each in found if issubclass(each, keras_hub.models.CausalLM)]
    tasks = [each for each in tasks if not issubclass(each, keras_hub.models.Seq2SeqLM)]
    return {each.__name__: each for each in tasks if each.__name__ != "CausalLM"}


def build(name, dtype=None):
    """A small task of a class.

    Args:
        name: of the class.
        dtype: policy of its backbone, or None for that of the process.
    """
    import keras

    keras.utils.set_random_seed(0)
    cls = classes()[name]
    preprocessor = cls.preprocessor_cls
    tokenizer = trained(preprocessor.tokenizer_cls)
    backbone = _backbone(cls.backbone_cls, tokenizer.vocabulary_size(), dtype)
    taken = inspect.signature(preprocessor).parameters
    others = {each: None for each in ("image_converter", "audio_converter", "video_converter") if each in taken}
    task = cls(backbone=backbone, preprocessor=preprocessor(tokenizer, sequence_length=_LENGTH, **others))
    task.compile(sampler="greedy", jit_compile=False)
    return task


def greedy_tokens(task, prompt, count):
    """The tokens of a prompt, and those that KerasHub's own loop puts behind it, whether or not a text ends there."""
    length = count + len(task.preprocessor.tokenizer(prompt)) + 1
    inputs = task.preprocessor.generate_preprocess([prompt], sequence_length=length)
    size = int(np.asarray(inputs["padding_mask"]).sum())
    tokens = np.asarray(task.make_generate_function()(inputs, stop_token_ids=None)["token_ids"])[0]
    return tokens[:size].tolist(), tokens[size : size + count].tolist()


def _backbone(cls, vocabulary_size, dtype):
    parameters = inspect.signature(cls).parameters
    sizes = {"max_sequence_length": _LONGEST, "sliding_window": _WINDOW, "sliding_window_size": _WINDOW}
    sizes |= dict.fromkeys(("vocabulary_size", "vocab_size"), vocabulary_size)
    own = {name: size for name, size in sizes.items() if name in parameters}
    backbone = built(
        Part(cls.__name__, {**ARGUMENTS.get(cls.__name__, {}), **own, **({"dtype": dtype} if dtype else {})})
    )
    random = np.random.default_rng(0)
    for weight in backbone.weights:
        if weight.trainable:  # Not the initial values, by which all texts are one token.
            value = np.asarray(weight.value, "float32") + random.normal(0, 0.4, weight.shape)
            weight.assign(value)
    return backbone


def trained(cls):
    """A tokenizer of a class of KerasHub, trained on a few lines."""
    import keras_hub

    if issubclass(cls, keras_hub.tokenizers.BytePairTokenizer):
        return cls(**_pairs())
    return cls(proto=_pieces(cls.__name__.startswith("Gemma")), **_TEXTS_ALONE.get(cls.__name__, {}))


def _pairs():
    """The vocabulary and the merges of a byte-pair tokenizer."""
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(LINES, tokenizers.trainers.BpeTrainer(vocab_size=_PAIRS, initial_alphabet=letters))
    found = json.loads(model.to_str())["model"]
    vocabulary = dict(found["vocab"])
    for token in _OF_PAIRS:
        vocabulary.setdefault(token, len(vocabulary))
    return {
        "vocabulary": vocabulary,
        "merges": [each if isinstance(each, str) else " ".join(each) for each in found["merges"]],
    }


def _pieces(is_gemma):
    """A SentencePiece model, with the ids of special tokens that Gemma or Llama has."""
    import sentencepiece

    model = io.BytesIO()
    start, end = ("<bos>", "<eos>") if is_gemma else ("<s>", "</s>")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 25),
        model_writer=model,
        vocab_size=_PIECES,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece=end,
        bos_piece=start,
        user_defined_symbols=_OF_PIECES,
        minloglevel=2,
    )
    return model.getvalue()
