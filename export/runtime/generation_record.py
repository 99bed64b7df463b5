"""Validation of the generation record of a manifest."""

from typing import Any

from keras_transformer.export.bundle.manifest import signature_specs
from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.generation import GenerationSpec


def is_language_bundle(manifest: dict[str, Any]) -> bool:
    """Whether the bundle of a manifest generates.

    Raises:
        InvalidBundleError: the record is incomplete.
    """
    record = manifest.get("generation")
    if record is None:
        return False
    try:
        spec = GenerationSpec.from_dict(record)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidBundleError(f"the manifest's record of generation is not valid: {error}") from None
    if not {"prefill", "decode"} <= set(manifest["signatures"]):
        raise InvalidBundleError("the manifest's record of generation is incomplete: no prefill or decode")
    inputs, outputs = signature_specs(manifest, "decode")
    if not {"token_ids", "cache_index"} <= {each.name for each in inputs}:
        raise InvalidBundleError("signature 'decode' has no input token_ids or no input cache_index")
    missing = set(cache_names(manifest)) - ({each.name for each in inputs} & {each.name for each in outputs})
    if missing:
        raise InvalidBundleError(f"signature 'decode' does not take and return the cache: {', '.join(sorted(missing))}")
    logits = next((each for each in outputs if each.name == "logits"), None)
    if logits is None or logits.shape[-1:] != (spec.vocabulary_size,):
        raise InvalidBundleError(f"signature 'decode' has no output logits of {spec.vocabulary_size} tokens")
    return True


def cache_names(manifest: dict[str, Any]) -> list[str]:
    """Names of the tensors of the cache, which `prefill` and `decode` take and return.

    Manifests of earlier versions do not record them: they are the outputs beside the logits and hidden states.

    Args:
        manifest: the manifest, with a record of generation.
    """
    names = manifest["generation"].get("cache")
    if names is not None:
        return list(names)
    outputs = signature_specs(manifest, "decode")[1]
    return [each.name for each in outputs if each.name not in ("logits", "hidden_states")]
