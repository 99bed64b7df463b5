"""XLNet: transformers\' `XLNetModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.heads import span_answerer
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Expanded, Transposed
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm, same
from keras_transformer.models import Size, XLNet

_MASK = "mask_emb"
# Of the query stream, which only pretraining uses.
_UNUSED = (rf"^(transformer\.)?{_MASK}$",)


def _language_head(config: Config, prefix: str) -> list[Entry]:
    query_stream = Entry((prefix + _MASK,), ("query_stream/mask_embedding",), Expanded(2))
    return [query_stream, same("lm_loss.bias", "logits/bias")]


def _language_model(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("tie_word_embeddings", True)
    return tasks.PermutationLanguageModel(backbone)


def _classifier(backbone: keras.Model, config: Config, choice: bool = False) -> keras.Model:
    """Returns a classifier by the last token, <cls>."""
    config.only("summary_type", "last")
    config.only("summary_use_proj", True)
    model = tasks.SequenceClassifier(
        backbone,
        1 if choice else config.num_labels,
        pooling="last",
        hidden_dim=backbone.output.shape[-1],
        hidden_activation=config.activation("summary_activation", "tanh"),
        dropout=config.number("summary_last_dropout", 0.1),
        activation=None,
    )
    return tasks.MultipleChoice(model) if choice else model


def _summary(config: Config, prefix: str) -> list[Entry]:
    return [*linear("sequence_summary.summary", "pooler"), *linear("logits_proj", "logits")]


class Xlnet(Architecture):
    """XLNet: Yang et al., arXiv 1906.08237.

    The language model is the permutation language model. `models.with_memory` of the backbone reads a text in segments, with
    the lengths that transformers reads from "mem_len" and "reuse_len". `tasks.permutation_generator` generates texts, as
    transformers with `use_mems=False`. Not supported: the beam search of "QuestionAnswering".
    """

    remark = "two-stream"
    base_prefix = "transformer."
    tied = {"lm_loss.weight": "transformer.word_embedding.weight"}
    heads = {
        "Model": Head(ignored=_UNUSED),
        "LMHeadModel": Head(_language_model, _language_head),
        "SequenceClassification": Head(_classifier, _summary, _UNUSED),
        "MultipleChoice": Head(lambda backbone, config: _classifier(backbone, config, choice=True), _summary, _UNUSED),
        "TokenClassification": Head(
            lambda backbone, config: tasks.Tagger(backbone, config.num_labels, dropout=0.0),
            lambda config, prefix: linear("classifier", "logits"),
            _UNUSED,
        ),
        "QuestionAnsweringSimple": Head(span_answerer, lambda config, prefix: linear("qa_outputs", "span"), _UNUSED),
    }

    def backbone(self, config: Config) -> keras.Model:
        width, heads = config.integer("d_model"), config.integer("n_head")
        config.only("d_head", width // heads)
        config.only("bi_data", False)
        config.only("clamp_len", -1)
        config.only("same_length", False)
        dropout = config.number("dropout", 0.1)
        return XLNet(
            Size(config.integer("n_layer"), width, heads, config.integer("d_inner")),
            config.integer("vocab_size"),
            causal=config.choice("attn_type", {"bi": False, "uni": True}, "bi"),
            activation=config.activation("ff_activation"),
            dropout=dropout,
            attention_dropout=dropout,
            layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = embedding("word_embedding", "token_embedding")
        for index in range(config.integer("n_layer")):
            theirs, ours = f"layer.{index}", f"encoder_block_{index}"
            entries += [
                *_attention(f"{theirs}.rel_attn", f"{ours}/self_attention"),
                *norm(f"{theirs}.rel_attn.layer_norm", f"{ours}/mixer_residual/norm"),
                *linear(f"{theirs}.ff.layer_1", f"{ours}/feedforward/hidden"),
                *linear(f"{theirs}.ff.layer_2", f"{ours}/feedforward/output"),
                *norm(f"{theirs}.ff.layer_norm", f"{ours}/feedforward_residual/norm"),
            ]
        return entries


def _attention(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of the attention, whose kernels, the output's too, are `(D, N, H)`."""
    same_shape = {
        "q": "query/kernel",
        "k": "key/kernel",
        "v": "value/kernel",
        "r": "position/kernel",
        "r_w_bias": "position/content_bias",
        "r_r_bias": "position/position_bias",
        "r_s_bias": "segment_bias",
        "seg_embed": "segment_embedding",
    }
    output = Entry((f"{theirs}.o",), (f"{ours}/attention_output/kernel",), Transposed((2, 0, 1)))
    return [output, *(same(f"{theirs}.{name}", f"{ours}/{path}") for name, path in same_shape.items())]
