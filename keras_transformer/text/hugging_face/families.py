"""Default special tokens and templates of the tokenizer families of transformers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.tokenizers.special_tokens import BERT
from keras_transformer.utils.types import Config, JsonObject

if TYPE_CHECKING:
    import tokenizers

_TEXT_ENDS = {"start": "<s>", "end": "</s>", "unknown": "<unk>"}
_ROBERTA = {**_TEXT_ENDS, "separator": "</s>", "pad": "<pad>", "classification": "<s>", "mask": "<mask>"}
_ENDS = dict.fromkeys(("start", "end", "unknown"), "<|endoftext|>")


@dataclasses.dataclass(frozen=True)
class Family:
    """Defaults of a tokenizer family.

    Attributes:
        name: str.
        roles: dict of role to token, for roles that no file defines.
        single, pair: templates of `TemplateProcessing`, with roles or tokens; () for no template.
        mask_takes_space: bool. Whether the mask token includes the space before it (`lstrip`).
        padding_side: "right" or "left".
    """

    name: str
    roles: dict
    single: tuple = ()
    pair: tuple = ()
    mask_takes_space: bool = False
    padding_side: str = "right"


_BERT_PAIR = ("classification:0", "$A:0", "separator:0", "$B:1", "separator:1")
_ROBERTA_PAIR = ("classification", "$A", "separator", "separator", "$B", "separator")
FAMILIES = {
    family.name: family
    for family in (
        Family("bert", BERT, ("classification:0", "$A:0", "separator:0"), _BERT_PAIR),
        Family("gpt2", _ENDS),
        Family("roberta", _ROBERTA, ("classification", "$A", "separator"), _ROBERTA_PAIR),
        Family(
            "clip",
            {**_ENDS, "start": "<|startoftext|>", "pad": "<|endoftext|>"},
            ("start", "$A", "end"),
            ("start", "$A", "end", "end", "$B", "end"),
        ),
        Family(
            "whisper",
            _ENDS,
            ("<|startoftranscript|>:0", "<|notimestamps|>:0", "$A:0", "end:0"),
            ("<|startoftranscript|>:0", "<|notimestamps|>:0", "$A:0", "$B:1", "end:1"),
        ),
        Family("wav2vec2", {**_TEXT_ENDS, "pad": "<pad>"}),
        Family("qwen2", {"unknown": "<|endoftext|>", "end": "<|endoftext|>", "pad": "<|endoftext|>"}),
        Family(
            "t5",
            {"end": "</s>", "unknown": "<unk>", "pad": "<pad>"},
            ("$A", "end"),
            ("$A", "end", "$B", "end"),
        ),
        Family(
            "siglip",
            {"end": "</s>", "unknown": "<unk>", "pad": "</s>"},
            ("$A", "end"),
            ("$A", "end", "$B", "end"),
        ),
        Family(
            "albert",
            {**BERT, "start": "[CLS]", "end": "[SEP]", "unknown": "<unk>", "pad": "<pad>"},
            ("classification:0", "$A:0", "separator:0"),
            _BERT_PAIR,
        ),
        Family(
            "deberta-v2",
            {**BERT, "start": "[CLS]", "end": "[SEP]"},
            ("classification:0", "$A:0", "separator:0"),
            _BERT_PAIR,
        ),
        Family(
            "xlnet",
            {**_TEXT_ENDS, "separator": "<sep>", "pad": "<pad>", "classification": "<cls>", "mask": "<mask>"},
            ("$A:0", "separator:0", "classification:2"),
            ("$A:0", "separator:0", "$B:1", "separator:1", "classification:2"),
            mask_takes_space=True,
            padding_side="left",
        ),
        Family(
            "camembert",
            _ROBERTA,
            ("start", "$A", "end"),
            ("start", "$A", "end", "end", "$B", "end"),
            mask_takes_space=True,
        ),
        Family("xlm-roberta", _ROBERTA, ("start", "$A", "end"), ("start", "$A", "end", "end", "$B", "end")),
        Family("llama", _TEXT_ENDS, padding_side="left"),
        Family(
            "gemma",
            {"start": "<bos>", "end": "<eos>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>"},
            padding_side="left",
        ),
    )
}
_ALIASES = {
    "bert": "distilbert electra mobilebert layoutlm layoutlmv2 lxmert convbert squeezebert",
    "gpt2": "gpt_neo gptj codegen",
    "roberta": "bart longformer led mvp layoutlmv3",
    "clip": "clip_text_model clipseg",
    "qwen2": "qwen2_5_vl qwen2_moe qwen3 qwen3_moe qwen3_next",
    "t5": "mt5 umt5",
    "deberta-v2": "debertav2",
    "wav2vec2": "wav2vec2ctc hubert wavlm",
    "xlm-roberta": "xlmroberta kosmos-2",
    "llama": "mistral mixtral",
    "gemma": "gemma2 gemma3 paligemma siglip2 siglip2_text_model",
    "siglip": "siglip_text_model",
}
_FAMILY_OF = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()} | {
    name: name for name in FAMILIES
}


def family_of(config: Config) -> Family | None:
    """Returns the `Family` for "tokenizer_class", or else for "model_type", or None if it is unknown."""
    name = str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer").lower()
    if not name:
        name = str(config.get("model_type") or "").lower()
    return FAMILIES.get(_FAMILY_OF.get(name, ""))


def set_template(tokenizer: tokenizers.Tokenizer, family: Family, roles: JsonObject) -> None:
    """Sets the post-processor of a tokenizer to the template of its family.

    Raises:
        InvalidTokenizerError: a token of the template is not in the vocabulary.
    """
    if not family.single:
        return
    parts: list[list[str]] = []
    named: dict[str, int] = {}
    for template in (family.single, family.pair):
        filled = []
        for part in template:
            name, colon, segment = part.rpartition(":") if part[-2:-1] == ":" else (part, "", "")
            if not name.startswith("$"):
                name = roles.get(name, name)
                index = tokenizer.token_to_id(name)
                if index is None:
                    raise InvalidTokenizerError(f"the template needs {name!r}, which is not in the vocabulary")
                named[name] = index
            filled.append(f"{name}{colon}{segment}")
        parts.append(filled)
    tokenizer.post_processor = library().processors.TemplateProcessing(
        single=parts[0], pair=parts[1], special_tokens=list(named.items())
    )
