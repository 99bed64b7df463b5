"""The tasks of MediaPipe, and the names of their inputs and outputs. Imports no library."""

from typing import NamedTuple

IMAGE, IDS, MASK, SEGMENTS = "image", "ids", "mask", "segment_ids"
# Of a detector; MediaPipe looks for the outputs by these names in the metadata.
LOCATION, CATEGORY, SCORE, COUNT = "location", "category", "score", "number of detections"


class Task(NamedTuple):
    """A task of MediaPipe.

    Args:
        is_image: whether it takes images; text otherwise.
        is_classifier: whether it returns scores of classes; a vector otherwise.
        is_detector: whether it returns boxes with classes and scores instead.
    """

    is_image: bool
    is_classifier: bool
    is_detector: bool = False

    @property
    def output(self) -> str:
        """Name of the output, of a task with one."""
        return "probabilities" if self.is_classifier else "embedding"


TASKS = {
    "image_classifier": Task(True, True),
    "image_embedder": Task(True, False),
    "object_detector": Task(True, False, is_detector=True),
    "text_classifier": Task(False, True),
    "text_embedder": Task(False, False),
}
