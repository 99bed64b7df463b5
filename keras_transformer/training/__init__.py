"""What `model.fit` is fed and steered with: data, batches, losses, metrics, schedules and callbacks."""

from keras_transformer.lazy import lazy
from keras_transformer.training.contrastive_loss import ContrastiveLoss
from keras_transformer.training.losses import MaskedCrossentropy
from keras_transformer.training.metrics import MaskedAccuracy, Perplexity
from keras_transformer.training.schedules import InverseSquareRoot, WarmupCosine

# Loaded on first use: some need TensorFlow, or packages of their own.
_LAZY = {
    "AdapterError": "errors",
    "Augmentation": "augmentation",
    "AveragedWeights": "averaged_weights",
    "BatchStream": "batch_stream",
    "Checkpoint": "checkpoint",
    "CheckpointError": "errors",
    "ClassMismatchError": "errors",
    "CodingRate": "coding_rate",
    "CorruptImageError": "errors",
    "DistributionError": "errors",
    "ImageData": "images",
    "ImageDataError": "errors",
    "ImageSet": "images",
    "ImageSizeError": "errors",
    "LayerwiseAdamW": "layerwise_rates",
    "MissingDataError": "errors",
    "MissingFileError": "errors",
    "NoImagesError": "errors",
    "Ragged": "ragged",
    "RedrawFeatures": "redraw_features",
    "Sentence": "readers",
    "SequenceDataError": "errors",
    "Span": "spans",
    "SpanScores": "spans",
    "SubwordSampling": "subword_sampling",
    "TagError": "errors",
    "TensorBoardPictures": "tensorboard_pictures",
    "TextFileError": "errors",
    "TextMetrics": "text_metrics",
    "TokenMasking": "masking",
    "TokenPermutation": "permutation",
    "add_lora": "adapters",
    "batches": "pipeline",
    "bucket_batches": "buckets",
    "coding_rates": "coding_rate",
    "distributed": "distribution",
    "entity_spans": "spans",
    "evaluation_batches": "windows",
    "hide_tokens": "masked_batches",
    "is_chief": "distribution",
    "language_model_batches": "windows",
    "layerwise_decay": "layerwise_rates",
    "load_images": "images",
    "load_lora": "adapters",
    "mask_tokens": "masked_batches",
    "merge_lora": "adapters",
    "next_token": "buckets",
    "on_pixels": "pipeline",
    "pack": "packing",
    "permute_tokens": "permuted_batches",
    "read_conll": "readers",
    "read_json_lines": "readers",
    "read_lines": "readers",
    "read_pairs": "readers",
    "read_tsv": "readers",
    "recompute_blocks": "recomputation",
    "save_lora": "adapters",
    "segment_mask": "packing",
    "sequence_to_sequence": "buckets",
    "shuffle_buffer": "shuffling",
    "span_f1": "spans",
}

__all__ = [
    "ContrastiveLoss",
    "InverseSquareRoot",
    "MaskedAccuracy",
    "MaskedCrossentropy",
    "Perplexity",
    "WarmupCosine",
    *_LAZY,
]

__getattr__, __dir__ = lazy(__name__, _LAZY, __all__)
