"""The pipelines of transformers.js. Imports no library."""

from typing import NamedTuple

ENGINE = "transformers.js"


class Task(NamedTuple):
    """A pipeline of transformers.js.

    Args:
        model_type: what its configuration says of the model.
        architecture: class that runs it.
        output: name of the output.
        rank: dimensions of the output.
        is_image: whether it takes images; text otherwise.
    """

    model_type: str
    architecture: str
    output: str
    rank: int
    is_image: bool = False


TASKS = {
    "feature-extraction": Task("bert", "BertModel", "last_hidden_state", 3),
    "text-classification": Task("bert", "BertForSequenceClassification", "logits", 2),
    "fill-mask": Task("bert", "BertForMaskedLM", "logits", 3),
    "image-classification": Task("vit", "ViTForImageClassification", "logits", 2, is_image=True),
}
