from .batch_stream import (
    BatchStream as BatchStream,
)
from .entity_spans import (
    Span as Span,
)
from .entity_spans import (
    SpanScores as SpanScores,
)
from .entity_spans import (
    entity_spans as entity_spans,
)
from .entity_spans import (
    span_f1 as span_f1,
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
    MissingTextFileError as MissingTextFileError,
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
from .images.augmentation import (
    Augmentation as Augmentation,
)
from .images.batches import (
    batches as batches,
)
from .images.batches import (
    on_pixels as on_pixels,
)
from .images.image_data import (
    ImageData as ImageData,
)
from .images.image_data import (
    ImageSet as ImageSet,
)
from .images.image_data import (
    load_images as load_images,
)
from .input_wait import (
    InputWait as InputWait,
)
from .input_wait import (
    input_wait as input_wait,
)
from .log_shapes import (
    log_shapes as log_shapes,
)
from .pretraining.masked_batches import (
    hide_tokens as hide_tokens,
)
from .pretraining.masked_batches import (
    mask_tokens as mask_tokens,
)
from .pretraining.permuted_batches import (
    permute_tokens as permute_tokens,
)
from .pretraining.repeated_segments import (
    repeated_segment_batches as repeated_segment_batches,
)
from .pretraining.token_masking import (
    TokenMasking as TokenMasking,
)
from .pretraining.token_permutation import (
    TokenPermutation as TokenPermutation,
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
from .sequences.buckets import (
    bucket_batches as bucket_batches,
)
from .sequences.buckets import (
    next_token as next_token,
)
from .sequences.buckets import (
    sequence_to_sequence as sequence_to_sequence,
)
from .sequences.chats import (
    Chats as Chats,
)
from .sequences.chats import (
    encode_chats as encode_chats,
)
from .sequences.packing import (
    pack as pack,
)
from .sequences.ragged import (
    Ragged as Ragged,
)
from .sequences.shuffling import (
    shuffle_buffer as shuffle_buffer,
)
from .sequences.subword_sampling import (
    SubwordSampling as SubwordSampling,
)
from .sequences.windows import (
    evaluation_batches as evaluation_batches,
)
from .sequences.windows import (
    language_model_batches as language_model_batches,
)
