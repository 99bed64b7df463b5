from .batches import (
    retrieval_batches as retrieval_batches,
)
from .batches import (
    retrieval_evaluation_batches as retrieval_evaluation_batches,
)
from .chunks import (
    Chunks as Chunks,
)
from .database import (
    ChunkDatabase as ChunkDatabase,
)
from .errors import (
    InvalidDatabaseError as InvalidDatabaseError,
)
from .errors import (
    RetrievalError as RetrievalError,
)
from .mean_embedding import (
    MeanEmbedding as MeanEmbedding,
)
from .n_grams import (
    HashedNGrams as HashedNGrams,
)
from .nearest_neighbors import (
    NearestNeighbors as NearestNeighbors,
)
from .steps import (
    RetrievalSteps as RetrievalSteps,
)
from .steps import (
    with_retrieval as with_retrieval,
)
