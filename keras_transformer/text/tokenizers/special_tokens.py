"""Special tokens: roles, default names and well-known names."""

from __future__ import annotations

from collections.abc import Sequence

from keras_transformer.text.errors import SpecialTokenError
from keras_transformer.utils.types import JsonObject, SpecialTokens

# In the order of their ids in a vocabulary trained by this package.
ROLES = ("pad", "unknown", "classification", "start", "end", "separator", "mask")

BERT = {
    "pad": "[PAD]",
    "unknown": "[UNK]",
    "classification": "[CLS]",
    "separator": "[SEP]",
    "mask": "[MASK]",
}
PLAIN = {"pad": "<pad>", "unknown": "<unk>", "start": "<s>", "end": "</s>", "mask": "<mask>"}
# Byte-level tokenizers encode every text, so they need no unknown token.
WITHOUT_UNKNOWN = {role: token for role, token in PLAIN.items() if role != "unknown"}

# Names in pretrained vocabularies. A token may have two roles.
WELL_KNOWN = {
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "unknown": ("<unk>", "[UNK]"),
    "classification": ("[CLS]",),
    "start": ("<s>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    "separator": ("[SEP]",),
    "mask": ("<mask>", "[MASK]"),
}


def special_token_roles(special_tokens: SpecialTokens | None, default: dict[str, str]) -> JsonObject:
    """Validates special tokens and sorts them in the order of their ids.

    Args:
        special_tokens: dict of role to token, or None for `default`. A role mapped to None is left out. The role
            "additional" maps to a list of further tokens without a role.
        default: dict of role to token.

    Returns:
        dict of role to token in the order of `ROLES`, then "additional" with a list if it is not empty.

    Raises:
        SpecialTokenError: an unknown role, a token that is not a non-empty str, or a duplicate token.
    """
    given = dict(default if special_tokens is None else special_tokens)
    additional = list(given.pop("additional", None) or ())
    unknown = sorted(set(given) - set(ROLES))
    if unknown:
        raise SpecialTokenError(f"Unknown role {unknown[0]!r}. Valid roles: {', '.join(ROLES)}, additional")
    roles = {role: given[role] for role in ROLES if given.get(role) is not None}
    tokens = [*roles.values(), *additional]
    for token in tokens:
        if not isinstance(token, str) or not token:
            raise SpecialTokenError(f"A special token must be a non-empty str. Received: {token!r}")
        if tokens.count(token) > 1:
            raise SpecialTokenError(f"The special token {token!r} is a duplicate.")
    return {**roles, "additional": additional} if additional else roles


def tokens_in(roles: JsonObject) -> list[str]:
    """All distinct special tokens, in the order of `roles`."""
    named = [token for role, token in roles.items() if role != "additional"]
    return list(dict.fromkeys([*named, *roles.get("additional", ())]))


def well_known_roles(tokens: Sequence[str]) -> JsonObject:
    """Assigns roles to the `tokens` with well-known names; the others are "additional"."""
    roles: JsonObject = {}
    for role, names in WELL_KNOWN.items():
        found = [name for name in names if name in tokens]
        if found:
            roles[role] = found[0]
    additional = [token for token in tokens if token not in roles.values()]
    return {**roles, "additional": additional} if additional else roles
