"""Loading of the tokenizer of a Hugging Face checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.families import family_of, set_template
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.hugging_face.json import added_tokens, check_ids, load_content, parsed
from keras_transformer.text.hugging_face.tokenizer import CHAT_FILE, FILE, HuggingFaceTokenizer
from keras_transformer.text.hugging_face.vocabulary import (
    SENTENCEPIECE_FILES,
    from_vocabulary,
    interspersed,
    is_interspersed,
)
from keras_transformer.text.tokenizers.special_tokens import well_known_roles
from keras_transformer.text.tokenizers.tokenizer_files import errors_with_path, read_text
from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.types import Config, JsonObject, Path

if TYPE_CHECKING:
    import tokenizers

    from keras_transformer.text.hugging_face.families import Family
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

ROLES = {
    "bos_token": "start",
    "eos_token": "end",
    "unk_token": "unknown",
    "sep_token": "separator",
    "pad_token": "pad",
    "cls_token": "classification",
    "mask_token": "mask",
}
# A folder with one of these files contains a tokenizer.
HUGGINGFACE_FILES = (FILE, "vocab.txt", "vocab.json", "merges.txt", *SENTENCEPIECE_FILES)
# Settings of the transformer of a folder of sentence-transformers.
_SENTENCES = "sentence_bert_config.json"
# Options of the `BertNormalizer`, and their keys in `tokenizer_config.json`.
_BERT = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}


def from_huggingface(folder: Path) -> Tokenizer:
    """Loads the tokenizer of a Hugging Face checkpoint.

    Reads `tokenizer.json`, or else the older `vocab.txt` (BERT family), `vocab.json` with `merges.txt` (GPT-2, RoBERTa,
    CLIP, Whisper, Qwen2), `vocab.json` alone (wav2vec 2.0, VITS), or a SentencePiece model (T5, ALBERT, DeBERTa v2 and v3,
    XLNet, CamemBERT, XLM-RoBERTa, Llama, Gemma). Also reads `tokenizer_config.json`, `special_tokens_map.json`,
    `added_tokens.json` and `config.json` if present.

    Args:
        folder: str or path.

    Returns:
        A `HuggingFaceTokenizer`, with the same ids, templates and decoded texts as transformers; for VITS, an
        `InterspersedCharacters` with the same ids.

    Raises:
        InvalidTokenizerError: the folder does not exist, contains no tokenizer or one of an unknown family, or its files
            are invalid or inconsistent.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able"]).save("bert")
    >>> with open("bert/config.json", "w") as file:
    ...     _ = file.write('{"model_type": "bert"}')
    >>> tokenizer = from_huggingface("bert")
    >>> tokenizer.encode("Unaffable", **tokenizer.template_options)
    [2, 5, 6, 7, 3]
    """
    if not os.path.isdir(folder):
        raise InvalidTokenizerError(f"'{folder}' is not a folder.")
    config = _config(folder)
    path = os.path.join(folder, FILE)
    has_own = os.path.isfile(path)
    if not has_own and is_interspersed(config):
        return interspersed(folder, config)
    if has_own:
        with errors_with_path(path):
            content = parsed(read_text(path))
        family = family_of(config)
    else:
        family, tokenizer = from_vocabulary(folder, config)
        content = parsed(tokenizer.to_str())
    with errors_with_path(folder):
        return _tokenizer(content, config, family, has_own)


def _read_object(folder: Path, name: str) -> JsonObject:
    path = os.path.join(folder, name)
    return read_json(path, InvalidTokenizerError) if os.path.isfile(path) else {}


def _config(folder: Path) -> JsonObject:
    """Merges the config files; later files override earlier ones."""
    listed = (*ROLES, "additional_special_tokens")
    config = {key: value for key, value in _read_object(folder, "special_tokens_map.json").items() if key in listed}
    config.update(_read_object(folder, "tokenizer_config.json"))
    config.setdefault("model_type", _read_object(folder, "config.json").get("model_type"))
    path = os.path.join(folder, CHAT_FILE)
    if os.path.isfile(path):
        with errors_with_path(path):
            config["chat_template"] = read_text(path)
    config["added_tokens.json"] = _read_object(folder, "added_tokens.json")
    config["max_length"] = _max_length(folder, config)
    return config


def _max_length(folder: Path, config: Config) -> int | None:
    """The length to which sentence-transformers truncates texts; None for other folders, or no limit."""
    if not os.path.isfile(os.path.join(folder, _SENTENCES)):
        return None
    found = _read_object(folder, _SENTENCES).get("max_seq_length")
    if found is None:  # The default of sentence-transformers: what both the tokenizer and the position table allow.
        both = (config.get("model_max_length"), _read_object(folder, "config.json").get("max_position_embeddings"))
        known = [each for each in both if isinstance(each, int)]
        found = min(known) if len(known) == len(both) else None
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or found < 1):
        raise InvalidTokenizerError(
            f"{os.path.join(folder, _SENTENCES)}: max_seq_length is {found!r:.80}; expected a positive integer or null."
        )
    return found


def _tokenizer(content: JsonObject, config: Config, family: Family | None, has_template: bool) -> HuggingFaceTokenizer:
    """Creates the tokenizer. Without `has_template`, it gets the template of its family."""
    content = _adjusted(content, config, family)
    tokenizer = load_content({**content, "truncation": None, "padding": None})
    check_ids(content, tokenizer)
    _add(tokenizer, _missing(content, config, tokenizer))
    roles = _roles(tokenizer, config, family)
    _mark_special(tokenizer, roles, family)
    if not has_template and family is not None:
        set_template(tokenizer, family, roles)
    _set_ends(tokenizer, config, family, roles)
    text = tokenizer.to_str()
    additional = [token for token in _special(tokenizer) if token not in roles.values()]
    model = content["model"].get("type") or ("BPE" if "merges" in content["model"] else None)
    return HuggingFaceTokenizer(
        text,
        {**roles, "additional": additional} if additional else roles,
        padding_side=_side(config, "padding_side", "right" if family is None else family.padding_side),
        truncation_side=_side(config, "truncation_side", "right"),
        # Transformers does not clean up texts of BPE.
        clean_up_spaces=bool(config.get("clean_up_tokenization_spaces")) and model != "BPE",
        chat_template=_chat_template(config.get("chat_template")),
        max_length=config.get("max_length"),
    )


def _chat_template(found: Any) -> str | None:
    """The chat template: that named "default" of several."""
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise InvalidTokenizerError(f"chat_template must be text. Received: {found!r:.80}")
    return found


def _special(tokenizer: tokenizers.Tokenizer) -> list[str]:
    """Special tokens in the order of their ids."""
    added = tokenizer.get_added_tokens_decoder()
    return [added[index].content for index in sorted(added) if added[index].special]


def _mark_special(tokenizer: tokenizers.Tokenizer, roles: JsonObject, family: Family | None) -> None:
    """Marks the tokens with a role as special. Tokens that are not in the vocabulary are appended."""
    special = set(_special(tokenizer))
    for token in dict.fromkeys(roles.values()):
        if token not in special:
            takes_space = family is not None and family.mask_takes_space and token == roles.get("mask")
            tokenizer.add_special_tokens([library().AddedToken(token, special=True, lstrip=takes_space)])


def _side(config: Config, name: str, default: str) -> str:
    side = config.get(name) or default
    if side not in ("left", "right"):
        raise InvalidTokenizerError(f"{name} must be 'left' or 'right'. Received: {side!r}")
    return side


def _adjusted(content: JsonObject, config: Config, family: Family | None) -> JsonObject:
    """Applies the options of `tokenizer_config.json`, which take precedence in transformers."""
    normalizer, before = content.get("normalizer"), content.get("pre_tokenizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        for name, key in _BERT.items():
            if isinstance(config.get(key), bool):
                normalizer[name] = config[key]
    prefix = config.get("add_prefix_space")
    named = family is not None and family.name in ("gpt2", "roberta", "whisper")
    if named and isinstance(prefix, bool) and isinstance(before, dict) and before.get("type") == "ByteLevel":
        before["add_prefix_space"] = prefix
    return content


def _name(token: object) -> str | None:
    """Returns the text of a token, which is a str or a dict with its properties."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) and token else None


def _missing(content: JsonObject, config: JsonObject, tokenizer: Any) -> list[str | JsonObject]:
    """Returns the tokens to add, with their properties, in the order in which transformers adds them.

    Raises:
        InvalidTokenizerError: the id of a token in a file differs from its id in the vocabulary.
    """
    listed = config.get("added_tokens_decoder") or {}
    listed = listed if isinstance(listed, dict) else {}
    wanted: dict[int, str | JsonObject] = {}
    for index, token in listed.items():
        if not str(index).isdigit() or _name(token) is None:
            raise InvalidTokenizerError(f"added_tokens_decoder has an invalid entry {index!r}: {str(token)[:80]}")
        wanted[int(index)] = token
    for token, index in config["added_tokens.json"].items():
        if not isinstance(index, int) or index < 0:
            raise InvalidTokenizerError(f"added_tokens.json has an invalid id for {token!r}: {index!r}.")
        wanted.setdefault(index, token)
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    known = {each["content"] for each in added_tokens(content)}
    missing = []
    for index, token in sorted(wanted.items()):
        found = tokenizer.token_to_id(_name(token))
        if found is None:
            found, size = size, size + 1
        if found != index:
            raise InvalidTokenizerError(
                f"The added token {_name(token)!r} has the id {index} in one file, {found} in another."
            )
        if _name(token) not in known:
            missing.append(token)
            known.add(_name(token))
    further = [config.get(key) for key in ROLES]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = config.get(key) or []
        further += list(extra.values()) if isinstance(extra, dict) else extra if isinstance(extra, list) else []
    for token in further:
        if _name(token) is not None and _name(token) not in known:
            missing.append(
                {"special": True, **token} if isinstance(token, dict) else {"content": token, "special": True}
            )
            known.add(_name(token))
    return missing


def _add(tokenizer: tokenizers.Tokenizer, tokens: Iterable[str | JsonObject]) -> None:
    added = library().AddedToken
    for token in tokens:
        token = token if isinstance(token, dict) else {"content": token}
        flags = {name: bool(token[name]) for name in ("single_word", "lstrip", "rstrip", "normalized") if name in token}
        # Set for tokens with a role, and by the file.
        special = bool(token.get("special", False))
        tokenizer.add_tokens([added(token["content"], special=special, **flags)])


def _roles(tokenizer: tokenizers.Tokenizer, config: Config, family: Family | None) -> dict[str, str]:
    """Returns a dict of role to token, from the files or else the defaults of the family.

    A role that is null in the files has no token. If the family is unknown and the files define no role, well-known names
    are detected.
    """
    if family is not None:
        default = family.roles
    else:
        default = {} if any(key in config for key in ROLES) else well_known_roles(_special(tokenizer))
    roles = {role: _name(config[key]) if key in config else default.get(role) for key, role in ROLES.items()}
    return {role: token for role, token in roles.items() if token is not None}


def _set_ends(tokenizer: tokenizers.Tokenizer, config: Config, family: Family | None, roles: JsonObject) -> None:
    """Sets the template for `add_bos_token` and `add_eos_token` of `tokenizer_config.json`."""
    options = {"start": config.get("add_bos_token"), "end": config.get("add_eos_token")}
    has_template = family is not None and family.single
    if has_template or not any(isinstance(each, bool) for each in options.values()):
        return
    start, end = (roles.get(role) if options[role] else None for role in ("start", "end"))
    single = [f"{start}:0"] * bool(start) + ["$A:0"] + [f"{end}:0"] * bool(end)
    pair = [*single, *[f"{start}:1"] * bool(start), "$B:1", *[f"{end}:1"] * bool(end)]
    tokens = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((start, end)) if token]
    tokenizer.post_processor = library().processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)
