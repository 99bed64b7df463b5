"""Text generation: the decoding loop, samplers, searches and the engine.

It works on numpy arrays and imports neither Keras nor a runtime.
"""

from keras_transformer.generation.adjustment import LogitAdjustment
from keras_transformer.generation.chat.conversation import Conversation
from keras_transformer.generation.chat.template import ChatTemplate
from keras_transformer.generation.engine.engine import Engine
from keras_transformer.generation.errors import (
    ChatMessageError,
    ChatTemplateError,
    EmptyPromptError,
    EngineClosedError,
    EngineError,
    ForeignTokenizerError,
    GenerationError,
    GrammarError,
    MissingTokenizerError,
    PromptTooLongError,
    QueueFullError,
    RequestCancelledError,
    UserLimitError,
)
from keras_transformer.generation.generation_spec import GenerationSpec
from keras_transformer.generation.generator import Generator
from keras_transformer.generation.grammar.json_schema import JsonSchema
from keras_transformer.generation.grammar.lark import Lark
from keras_transformer.generation.grammar.regex import Regex
from keras_transformer.generation.samplers import SAMPLERS, Greedy, Random
from keras_transformer.generation.sampling_defaults import SamplingDefaults
from keras_transformer.generation.search.beam import BeamSearch
from keras_transformer.generation.search.contrastive import Contrastive
from keras_transformer.generation.search.ctc import CTCResult, ctc_beam_search, ctc_greedy
from keras_transformer.generation.search.ctc_stream import CTCStream
from keras_transformer.generation.search.draft_head import DraftHead
from keras_transformer.generation.search.prompt_lookup import PromptLookup
from keras_transformer.generation.search.speculative import Speculative
from keras_transformer.generation.search.tree_search import TreeSearch

__all__ = [
    "SAMPLERS",
    "BeamSearch",
    "CTCResult",
    "CTCStream",
    "ChatMessageError",
    "ChatTemplate",
    "ChatTemplateError",
    "Contrastive",
    "Conversation",
    "DraftHead",
    "EmptyPromptError",
    "Engine",
    "EngineClosedError",
    "EngineError",
    "ForeignTokenizerError",
    "GenerationError",
    "GenerationSpec",
    "Generator",
    "GrammarError",
    "Greedy",
    "JsonSchema",
    "Lark",
    "LogitAdjustment",
    "MissingTokenizerError",
    "PromptLookup",
    "PromptTooLongError",
    "QueueFullError",
    "Random",
    "Regex",
    "RequestCancelledError",
    "SamplingDefaults",
    "Speculative",
    "TreeSearch",
    "UserLimitError",
    "ctc_beam_search",
    "ctc_greedy",
]
