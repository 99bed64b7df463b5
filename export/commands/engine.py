"""The command `engine`: writes a language model for onnxruntime-genai or LiteRT-LM."""

import argparse

from keras_transformer.export.errors import ExportError

EXAMPLES = [
    "model.keras --for genai --out genai --quantize weight_int4",
    "model.keras --for litertlm --out model.litertlm",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer engine`."""
    parser.add_argument("model", metavar="MODEL", help="a language model: a .keras file, or a Hugging Face checkpoint")
    help = "genai: onnxruntime-genai's directory; litertlm: LiteRT-LM's file"
    parser.add_argument("--for", dest="engine", required=True, choices=("genai", "litertlm"), help=help)
    parser.add_argument("--out", required=True, metavar="PATH", help="the directory, or the .litertlm file")
    parser.add_argument("--quantize", metavar="MODE", help="fp16, int8, weight_int8 or weight_int4 (default: float32)")
    parser.add_argument("--max-length", type=int, metavar="N", help="largest number of tokens, prompt included")
    parser.add_argument("--no-tokenizer", action="store_true", help="genai: without the files of the tokenizer")


def run(arguments: argparse.Namespace) -> int:
    """Writes the model; returns the exit status."""
    from keras_transformer.export.commands.model_files import check_model, load_model
    from keras_transformer.export.quantization.options import Quantization

    if arguments.no_tokenizer and arguments.engine != "genai":
        raise ExportError("--no-tokenizer is for genai: a .litertlm file always contains its tokenizer")
    quantization = Quantization.of(arguments.quantize)
    path = check_model(arguments.model)
    model = load_model(path)
    options = {"max_length": arguments.max_length, "quantize": quantization}
    if arguments.engine == "genai":
        from keras_transformer.export.engines.genai.model_directory import write_genai

        print(write_genai(model, arguments.out, tokenizer=not arguments.no_tokenizer, **options))
    else:
        from keras_transformer.export.engines.litertlm.model_file import write_litertlm

        print(write_litertlm(model, arguments.out, **options))
    return 0
