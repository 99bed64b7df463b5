"""What an architecture of Hugging Face has to say to become one of our models."""

import re

from keras_transformer.checkpoints.errors import UnknownArchitectureError

# "BertForMaskedLM" is BERT with the head "MaskedLM", "GPT2LMHeadModel" has "LMHeadModel", "BertModel" has "Model".
_CLASS = re.compile(r"(?:For(?P<for>[A-Z]\w+)|(?P<plain>(?:Encoder|LMHead|MT)?Model(?:WithProjection|WithLMHead)?))$")


class Architecture:
    """Base of the architectures: one file each, one line each in `ARCHITECTURES`.

    Attributes:
        base_prefix: str: what stands before the backbone's tensors in a checkpoint that has a head, such as "bert."; a tuple
            where it is not the same for all heads.
        heads: dict of the name of a head, such as "MaskedLM" (see `head_of`), to a `Head`; "Model" is that of the class
            without a head, which may have a pooler.
        ignored: tuple of regular expressions of tensors that say nothing, such as the position ids of old versions. They are
            written back as they were.
        tied: dict of the name of a tensor that some files hold a second time to that of the first.
        drawn: tuple of regular expressions of paths of weights that no file holds: they are drawn when the model is read.
    """

    base_prefix = ""
    heads = {}
    ignored = ()
    tied = {}
    drawn = ()

    def backbone(self, config):
        """The model without a head, with weights as they begin.

        Args:
            config: `Config`.

        Returns:
            `keras.Model`.

        Raises:
            ConfigError: a setting that is missing, absurd, or of a variant that is not built.
        """
        raise NotImplementedError

    def entries(self, config):
        """The mapping of the backbone: list of `mapping.Entry`, names without `base_prefix`."""
        raise NotImplementedError

    def find_head(self, name, source):
        """The `Head` of a name; one that adds nothing for "Model", where an architecture has no other.

        Raises:
            UnknownArchitectureError: not one of `heads`.
        """
        if name == "Model" and name not in self.heads:
            return Head()
        if name not in self.heads:
            known = ", ".join(sorted(self.heads)) or "none"
            raise UnknownArchitectureError(
                f"{source}: no head {name!r} for {type(self).__name__}. Known heads: {known}"
            )
        return self.heads[name]


class Head:
    """What stands on a backbone.

    Args:
        build: function of `(backbone, config)` to a `keras.Model`.
        entries: function of `(config, prefix)` to its mapping: list of `mapping.Entry`, with whole names of tensors;
            `prefix` is what stands before the backbone's in this checkpoint.
        ignored: tuple of regular expressions of tensors that this head does not use, such as those of another one with which
            it was trained; see `Architecture`.
    """

    def __init__(self, build=lambda backbone, config: backbone, entries=lambda config, prefix: [], ignored=()):
        self.build = build
        self.entries = entries
        self.ignored = ignored


def head_of(config):
    """The name of the head in "architectures": "MaskedLM" of "BertForMaskedLM", "LMHeadModel", or "Model" for none.

    Raises:
        UnknownArchitectureError: it names no class in transformers' manner.
    """
    names = config.get("architectures") or ["Model"]
    found = _CLASS.search(names[0]) if isinstance(names, list) and isinstance(names[0], str) else None
    if found is None:
        raise UnknownArchitectureError(f"{config.source}: 'architectures' is {str(names)[:80]}.")
    return found["for"] or found["plain"]
