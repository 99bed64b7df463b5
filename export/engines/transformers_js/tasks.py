"""The pipelines of transformers.js. Imports no library."""

from typing import NamedTuple

ENGINE = "transformers.js"
IMAGE, TEXT, DECODER, TRANSLATOR, TRANSCRIBER = "image", "text", "decoder", "translator", "transcriber"


class Task(NamedTuple):
    """A pipeline of transformers.js.

    Args:
        model_type: what its configuration says of the model.
        architecture: class that runs it.
        output: name of the output.
        rank: dimensions of the output.
        kind: what it takes and returns: `IMAGE` or `TEXT` for one graph; `DECODER`, `TRANSLATOR` or `TRANSCRIBER` for a
            model that generates.
    """

    model_type: str
    architecture: str
    output: str
    rank: int
    kind: str = TEXT

    @property
    def is_image(self) -> bool:
        """Whether it takes images."""
        return self.kind == IMAGE

    @property
    def generates(self) -> bool:
        """Whether it generates token by token."""
        return self.kind in (DECODER, TRANSLATOR, TRANSCRIBER)


_TRANSLATOR = Task("bart", "BartForConditionalGeneration", "logits", 3, TRANSLATOR)
TASKS = {
    "feature-extraction": Task("bert", "BertModel", "last_hidden_state", 3),
    "text-classification": Task("bert", "BertForSequenceClassification", "logits", 2),
    "fill-mask": Task("bert", "BertForMaskedLM", "logits", 3),
    "image-classification": Task("vit", "ViTForImageClassification", "logits", 2, IMAGE),
    "text-generation": Task("llama", "LlamaForCausalLM", "logits", 3, DECODER),
    "translation": _TRANSLATOR,
    "summarization": _TRANSLATOR,
    "text2text-generation": _TRANSLATOR,
    "automatic-speech-recognition": Task("whisper", "WhisperForConditionalGeneration", "logits", 3, TRANSCRIBER),
}
# The name of a file's precision, and the end of the name of the file, by the mode of its quantization.
DTYPES = {None: ("fp32", ""), "fp16": ("fp16", "_fp16"), "int8": ("q8", "_quantized"), "weight_int4": ("q4", "_q4")}
