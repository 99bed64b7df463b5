"""The tasks of MediaPipe, and the names of their inputs. Imports no library."""

from typing import NamedTuple

IMAGE, IDS, MASK, SEGMENTS = "image", "ids", "mask", "segment_ids"


class Task(NamedTuple):
    """A task of MediaPipe.

    Args:
        is_image: whether it takes images; text otherwise.
        is_classifier: whether it returns scores of classes; a vector otherwise.
    """

    is_image: bool
    is_classifier: bool

    @property
    def output(self) -> str:
        """Name of the output."""
        return "probabilities" if self.is_classifier else "embedding"


TASKS = {
    "image_classifier": Task(True, True),
    "image_embedder": Task(True, False),
    "text_classifier": Task(False, True),
    "text_embedder": Task(False, False),
}
