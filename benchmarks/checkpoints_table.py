"""The architectures of Hugging Face whose checkpoints are read, for the documentation.

    python benchmarks/checkpoints_table.py

Writes the table of docs/supported.md from `checkpoints.ARCHITECTURES`: a row for each folder of `checkpoints/families/`, and
in it the names of each architecture with its `remark`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib

from keras_transformer.checkpoints import ARCHITECTURES

FILE = pathlib.Path(__file__).parents[1] / "docs" / "supported.md"
HEAD, BELOW = "| | `model_type` |\n|---|---|\n", "\n\n"
# By the folder of their file in `checkpoints/families/`, in the order of the table.
KINDS = {
    "text.encoders": "encoders",
    "text.decoders": "decoders",
    "text.llama_like": "decoders like Llama",
    "text.mixtures_of_experts": "decoders with experts",
    "recurrent": "recurrent decoders, and hybrids with attention",
    "text.encoder_decoders": "encoder-decoders",
    "audio": "speech",
    "vision": "images",
    "vision.detectors": "images, detection",
    "multimodal": "images with text",
}


def rows():
    """Returns a dict of kind to its architectures, as text."""
    names = {}
    for name, architecture in sorted(ARCHITECTURES.items()):
        names.setdefault(architecture, []).append(f"`{name}`")
    found = {kind: [] for kind in KINDS}
    for architecture, quoted in names.items():
        remark = vars(architecture).get("remark")  # A relative does not inherit it.
        shown = ", ".join(quoted) + (f" ({remark})" if remark else "")
        found[_folder(architecture)].append(shown)
    return {KINDS[kind]: ", ".join(shown) for kind, shown in found.items()}


def _folder(architecture):
    return architecture.__module__.partition("families.")[2].rpartition(".")[0]


def page():
    """Returns the page of what is supported, with the table as it is now."""
    before, _, after = FILE.read_text().partition(HEAD)
    table = "\n".join(f"| {kind} | {shown} |" for kind, shown in rows().items())
    return f"{before}{HEAD}{table}{BELOW}{after.partition(BELOW)[2]}"


if __name__ == "__main__":
    FILE.write_text(page())
    print(f"{FILE}: {len(ARCHITECTURES)} names")
