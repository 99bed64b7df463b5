"""Heads on backbones: ordinary Keras models that train with `compile` and `fit`."""

from keras_transformer.tasks.image_classifier import ImageClassifier
from keras_transformer.tasks.language_model import LanguageModel
from keras_transformer.tasks.masked_language_model import MaskedLanguageModel
from keras_transformer.tasks.pair_classifier import PairClassifier
from keras_transformer.tasks.pair_matcher import PairMatcher
from keras_transformer.tasks.pooling import POOLINGS, AttentionPooling
from keras_transformer.tasks.question_windows import QuestionWindow, question_windows
from keras_transformer.tasks.sequence_classifier import SequenceClassifier
from keras_transformer.tasks.span_answerer import SpanAnswerer
from keras_transformer.tasks.spans import AnswerSpan, answer_f1, best_spans, exact_match
from keras_transformer.tasks.tagger import Tagger

TASKS = {
    "image_classification": ImageClassifier,
    "language_model": LanguageModel,
    "masked_language_model": MaskedLanguageModel,
    "sequence_classification": SequenceClassifier,
    "pair_classification": PairClassifier,
    "pair_matching": PairMatcher,
    "tagging": Tagger,
    "span_answers": SpanAnswerer,
}

__all__ = [
    "POOLINGS",
    "TASKS",
    "AnswerSpan",
    "AttentionPooling",
    "ImageClassifier",
    "LanguageModel",
    "MaskedLanguageModel",
    "PairClassifier",
    "PairMatcher",
    "QuestionWindow",
    "SequenceClassifier",
    "SpanAnswerer",
    "Tagger",
    "answer_f1",
    "best_spans",
    "exact_match",
    "question_windows",
]
