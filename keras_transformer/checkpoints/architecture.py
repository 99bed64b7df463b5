"""Base classes of Hugging Face architectures and of their heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import keras

from keras_transformer.checkpoints.config import Config, shown
from keras_transformer.checkpoints.errors import UnknownArchitectureError
from keras_transformer.checkpoints.mapping import Entry

# "BertForMaskedLM" is BERT with the head "MaskedLM", "GPT2LMHeadModel" has "LMHeadModel", "BertModel" has "Model".
_CLASS = re.compile(
    r"(?:For(?P<for>[A-Z]\w+)|(?P<plain>(?:Encoder|LMHead|MT)?Model(?:WithProjection|WithLMHead)?)|Encoder)$"
)


class Architecture:
    """Base class of the architectures: one file each, and one line each in `ARCHITECTURES`.

    Attributes:
        base_prefix: str: prefix of the backbone's tensors in a checkpoint with a head, such as "bert."; a tuple if it
            depends on the head.
        heads: dict of the name of a head, such as "MaskedLM" (see `head_of`), to a `Head`; "Model" is the class
            without a head, which may have a pooler.
        ignored: tuple of regular expressions of tensors without information, such as the position ids of old versions. They
            are written back unchanged.
        tied: dict of the name of a duplicate tensor in some files to the name of the original, or to a tuple of the names
            that it may have.
        initialized: tuple of regular expressions of paths of weights that no file has: they are initialized at random.
        remark: str: what the documentation says beside its names, such as the models that it is known by.

    Example:

    >>> from keras_transformer import models
    >>> from keras_transformer.checkpoints.mapping import embedding
    >>> class MyBert(Architecture):
    ...     base_prefix = "my_bert."
    ...
    ...     def backbone(self, config):
    ...         return models.BERT(models.Size(2, config.integer("hidden_size"), 2, 64), config.integer("vocab_size"))
    ...
    ...     def entries(self, config):
    ...         return embedding("embeddings", "token_embedding")
    >>> MyBert().backbone(Config({"hidden_size": 8, "vocab_size": 11})).output.shape
    (None, None, 8)
    """

    base_prefix: str | tuple[str, ...] = ""
    heads: Mapping[str, Head] = {}
    ignored: tuple[str, ...] = ()
    tied: Mapping[str, str | tuple[str, ...]] = {}
    initialized: tuple[str, ...] = ()
    remark: str = ""

    def backbone(self, config: Config) -> keras.Model:
        """Returns the model without a head, with initial weights.

        Args:
            config: `Config`.

        Returns:
            `keras.Model`.

        Raises:
            ConfigError: a setting is missing, out of range, or of an unsupported variant.
        """
        raise NotImplementedError

    def entries(self, config: Config) -> list[Entry]:
        """Returns the mapping of the backbone: list of `mapping.Entry`, with names without `base_prefix`."""
        raise NotImplementedError

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        """Returns `ignored`, which may depend on the config."""
        return self.ignored

    def find_head(self, name: str, source: str) -> Head:
        """Returns the `Head` of a name; an empty one for "Model" if the architecture has no other.

        Raises:
            UnknownArchitectureError: the name is not in `heads`.
        """
        if name == "Model" and name not in self.heads:
            return Head()
        if name not in self.heads:
            known = ", ".join(sorted(self.heads)) or "none"
            raise UnknownArchitectureError(
                f"{source}: no head {name!r} for {type(self).__name__}. Known heads: {known}. To load the model without its "
                "head, pass task='backbone'."
            )
        return self.heads[name]


class Head:
    """The layers on top of a backbone.

    Args:
        build: function of `(backbone, config)` to a `keras.Model`.
        entries: function of `(config, prefix)` to its mapping: list of `mapping.Entry`, with full names of tensors;
            `prefix` is that of the backbone's tensors in this checkpoint.
        ignored: tuple of regular expressions of tensors that this head does not use, such as those of another pretraining
            head; see `Architecture`.

    Example:

    >>> Head(ignored=("pooler",)).ignored
    ('pooler',)
    """

    def __init__(
        self,
        build: Callable[[keras.Model, Config], keras.Model] = lambda backbone, config: backbone,
        entries: Callable[[Config, str], list[Entry]] = lambda config, prefix: [],
        ignored: tuple[str, ...] = (),
    ) -> None:
        self.build = build
        self.entries = entries
        self.ignored = ignored


def head_of(config: Config) -> str:
    """Returns the name of the head in "architectures": "MaskedLM" of "BertForMaskedLM", "LMHeadModel", or "Model" for none.

    Raises:
        UnknownArchitectureError: it is not the name of a class of transformers.
    """
    names = config.get("architectures") or ["Model"]
    found = _CLASS.search(names[0]) if isinstance(names, list) and isinstance(names[0], str) else None
    if found is None:
        raise UnknownArchitectureError(
            f"{config.source}: 'architectures' is {shown(names)}; it must name a class of transformers, such as "
            '["BertForMaskedLM"].'
        )
    return found["for"] or found["plain"] or "Model"
