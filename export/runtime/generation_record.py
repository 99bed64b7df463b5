"""Validation of the generation record of a manifest."""

from typing import Any

from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.generation import GenerationSpec

# The number of slots of the cache, in the record of a bundle whose signatures all have fixed shapes.
STATIC_LENGTH = "static_length"


def is_language_bundle(manifest: Manifest) -> bool:
    """Whether the bundle of a manifest generates.

    Raises:
        InvalidBundleError: the record is incomplete.
    """
    if manifest.generation is None:
        return False
    try:
        spec = GenerationSpec.from_dict(manifest.generation)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidBundleError(f"the manifest's record of generation is not valid: {error}") from None
    step = decoding_signature(manifest)
    inputs, outputs = manifest.signature(step)
    if not {"token_ids", "cache_index"} <= {each.name for each in inputs}:
        raise InvalidBundleError(f"signature '{step}' has no input token_ids or no input cache_index")
    missing = set(cache_names(manifest)) - ({each.name for each in inputs} & {each.name for each in outputs})
    if missing:
        raise InvalidBundleError(f"signature '{step}' does not take and return the cache: {', '.join(sorted(missing))}")
    logits = next((each for each in outputs if each.name == "logits"), None)
    if logits is None or logits.shape[-1:] != (spec.vocabulary_size,):
        raise InvalidBundleError(f"signature '{step}' has no output logits of {spec.vocabulary_size} tokens")
    return True


def generation_of(manifest: Manifest) -> dict[str, Any]:
    """The record of generation of a language model.

    Raises:
        InvalidBundleError: the bundle has none.
    """
    if manifest.generation is None:
        raise InvalidBundleError("the bundle is not that of a language model: its manifest has no record of generation")
    return manifest.generation


def has_fixed_shapes(manifest: Manifest) -> bool:
    """Whether the bundle of a language model has signatures of fixed shapes only, as those for accelerators."""
    return STATIC_LENGTH in generation_of(manifest)


def decoding_signature(manifest: Manifest) -> str:
    """Name of the signature that reads a token: `decode`, or the first of fixed shapes in a bundle that has no other.

    Raises:
        InvalidBundleError: there is none, or it has no way to read prompts.
    """
    names = manifest.signatures
    if not has_fixed_shapes(manifest):
        if not {"prefill", "decode"} <= set(names):
            raise InvalidBundleError("the manifest's record of generation is incomplete: no prefill or decode")
        return "decode"
    length = generation_of(manifest)[STATIC_LENGTH]
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise InvalidBundleError(f"the manifest's record of generation has {STATIC_LENGTH} {length!r}")
    found = next((name for name in names if name.startswith("decode_1")), None)
    if found is None:
        raise InvalidBundleError("the manifest's record of generation is incomplete: no decode_1")
    return found


def cache_names(manifest: Manifest) -> list[str]:
    """Names of the tensors of the cache, which `prefill` and `decode` take and return.

    Manifests of earlier versions do not record them: they are the outputs beside the logits and hidden states.

    Args:
        manifest: the manifest, with a record of generation.
    """
    names = generation_of(manifest).get("cache")
    if names is not None:
        return list(names)
    outputs = manifest.signature("decode").outputs
    return [each.name for each in outputs if each.name not in ("logits", "hidden_states")]
