from .augmentation import (
    Augmentation as Augmentation,
)
from .batch_stream import (
    BatchStream as BatchStream,
)
from .buckets import (
    bucket_batches as bucket_batches,
)
from .buckets import (
    next_token as next_token,
)
from .buckets import (
    sequence_to_sequence as sequence_to_sequence,
)
from .errors import (
    ClassMismatchError as ClassMismatchError,
)
from .errors import (
    CorruptImageError as CorruptImageError,
)
from .errors import (
    ImageDataError as ImageDataError,
)
from .errors import (
    ImageSizeError as ImageSizeError,
)
from .errors import (
    MissingDataError as MissingDataError,
)
from .errors import (
    MissingFileError as MissingFileError,
)
from .errors import (
    NoImagesError as NoImagesError,
)
from .errors import (
    SequenceDataError as SequenceDataError,
)
from .errors import (
    TagError as TagError,
)
from .errors import (
    TextFileError as TextFileError,
)
from .images import (
    ImageData as ImageData,
)
from .images import (
    ImageSet as ImageSet,
)
from .images import (
    load_images as load_images,
)
from .masked_batches import (
    hide_tokens as hide_tokens,
)
from .masked_batches import (
    mask_tokens as mask_tokens,
)
from .masking import (
    TokenMasking as TokenMasking,
)
from .packing import (
    pack as pack,
)
from .packing import (
    segment_mask as segment_mask,
)
from .permutation import (
    TokenPermutation as TokenPermutation,
)
from .permuted_batches import (
    permute_tokens as permute_tokens,
)
from .pipeline import (
    batches as batches,
)
from .pipeline import (
    on_pixels as on_pixels,
)
from .ragged import (
    Ragged as Ragged,
)
from .readers import (
    Sentence as Sentence,
)
from .readers import (
    read_conll as read_conll,
)
from .readers import (
    read_json_lines as read_json_lines,
)
from .readers import (
    read_lines as read_lines,
)
from .readers import (
    read_pairs as read_pairs,
)
from .readers import (
    read_tsv as read_tsv,
)
from .shuffling import (
    shuffle_buffer as shuffle_buffer,
)
from .spans import (
    Span as Span,
)
from .spans import (
    SpanScores as SpanScores,
)
from .spans import (
    entity_spans as entity_spans,
)
from .spans import (
    span_f1 as span_f1,
)
from .subword_sampling import (
    SubwordSampling as SubwordSampling,
)
from .windows import (
    evaluation_batches as evaluation_batches,
)
from .windows import (
    language_model_batches as language_model_batches,
)
