"""Heads on backbones: ordinary Keras models that train with `compile` and `fit`."""

from keras_transformer.tasks.decoding.permutation_steps import permutation_generator
from keras_transformer.tasks.pooling import POOLINGS, AttentionPooling
from keras_transformer.tasks.speech.error_rates import character_error_rate, edit_distance, word_error_rate
from keras_transformer.tasks.speech.speech_pretraining import ContrastiveSpeechLoss, SpeechPretraining
from keras_transformer.tasks.speech.speech_recognizer import SpeechRecognizer
from keras_transformer.tasks.speech.speech_stream import SpeechStream
from keras_transformer.tasks.speech.speech_synthesizer import SpeechSynthesizer
from keras_transformer.tasks.speech.transcribe import transcribe
from keras_transformer.tasks.text.language_model import LanguageModel
from keras_transformer.tasks.text.masked_language_model import MaskedLanguageModel
from keras_transformer.tasks.text.multiple_choice import MultipleChoice
from keras_transformer.tasks.text.pair_classifier import PairClassifier
from keras_transformer.tasks.text.pair_matcher import PairMatcher
from keras_transformer.tasks.text.permutation_language_model import PermutationLanguageModel
from keras_transformer.tasks.text.question_windows import QuestionWindow, question_windows
from keras_transformer.tasks.text.replaced_token_detector import ReplacedTokenDetector
from keras_transformer.tasks.text.sentence_embedder import SentenceEmbedder
from keras_transformer.tasks.text.sequence_classifier import SequenceClassifier
from keras_transformer.tasks.text.span_answerer import SpanAnswerer
from keras_transformer.tasks.text.spans import AnswerSpan, answer_f1, best_spans, exact_match
from keras_transformer.tasks.text.tagger import Tagger
from keras_transformer.tasks.text.text_model import TextModel
from keras_transformer.tasks.text.untie_embeddings import untie_embeddings
from keras_transformer.tasks.vision.detection_model import DetectionModel, Detections
from keras_transformer.tasks.vision.distilled_image_classifier import DistilledImageClassifier
from keras_transformer.tasks.vision.image_classifier import ImageClassifier
from keras_transformer.tasks.vision.object_detector import ObjectDetector
from keras_transformer.tasks.vision.prompted_segmentation_model import (
    EncodedImage,
    PromptedMasks,
    PromptedSegmentationModel,
)
from keras_transformer.tasks.vision.prompted_segmenter import MaskDecoderSize, PromptedSegmenter
from keras_transformer.tasks.vision.segmentation_model import SegmentationModel
from keras_transformer.tasks.vision.semantic_segmenter import SemanticSegmenter
from keras_transformer.tasks.vision.with_detections import DetectionOutputs, with_detections
from keras_transformer.tasks.vision.with_masks import with_masks

TASKS = {
    "image_classification": ImageClassifier,
    "distilled_image_classification": DistilledImageClassifier,
    "object_detection": ObjectDetector,
    "semantic_segmentation": SemanticSegmenter,
    "prompted_segmentation": PromptedSegmenter,
    "language_model": LanguageModel,
    "masked_language_model": MaskedLanguageModel,
    "permutation_language_model": PermutationLanguageModel,
    "sequence_classification": SequenceClassifier,
    "pair_classification": PairClassifier,
    "pair_matching": PairMatcher,
    "tagging": Tagger,
    "multiple_choice": MultipleChoice,
    "replaced_token_detection": ReplacedTokenDetector,
    "sentence_embedding": SentenceEmbedder,
    "span_answers": SpanAnswerer,
    "speech_pretraining": SpeechPretraining,
    "speech_recognition": SpeechRecognizer,
    "speech_synthesis": SpeechSynthesizer,
}

__all__ = [
    "POOLINGS",
    "TASKS",
    "AnswerSpan",
    "AttentionPooling",
    "DetectionModel",
    "DetectionOutputs",
    "Detections",
    "ContrastiveSpeechLoss",
    "DistilledImageClassifier",
    "EncodedImage",
    "ImageClassifier",
    "LanguageModel",
    "MaskDecoderSize",
    "MaskedLanguageModel",
    "MultipleChoice",
    "ObjectDetector",
    "PairClassifier",
    "PairMatcher",
    "PermutationLanguageModel",
    "PromptedMasks",
    "PromptedSegmentationModel",
    "PromptedSegmenter",
    "QuestionWindow",
    "ReplacedTokenDetector",
    "SegmentationModel",
    "SemanticSegmenter",
    "SentenceEmbedder",
    "SequenceClassifier",
    "SpanAnswerer",
    "SpeechPretraining",
    "SpeechRecognizer",
    "SpeechStream",
    "SpeechSynthesizer",
    "Tagger",
    "TextModel",
    "answer_f1",
    "best_spans",
    "character_error_rate",
    "edit_distance",
    "exact_match",
    "permutation_generator",
    "question_windows",
    "transcribe",
    "untie_embeddings",
    "with_detections",
    "with_masks",
    "word_error_rate",
]
