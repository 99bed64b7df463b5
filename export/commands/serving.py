"""The command `serving`: a bundle as TensorFlow Serving, or Triton Inference Server, loads it."""

from keras_transformer.export.errors import ExportError

EXAMPLES = ["bundle --out served", "bundle --out served --version 2", "bundle --for triton --out repository"]


def add_arguments(parser):
    """Adds the options of `keras-transformer serving`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--out", required=True, metavar="DIR", help="directory of the model, its versions in it")
    parser.add_argument("--version", dest="number", type=int, default=1, metavar="N", help="default: 1")
    help = "the signature that serving_default stands for (default: the bundle's first)"
    parser.add_argument("--default", metavar="NAME", help=help)
    help = "tensorflow (default) or triton"
    parser.add_argument("--for", dest="server", choices=("tensorflow", "triton"), default="tensorflow", help=help)
    help = "the most examples that are computed at once (default: 32)"
    parser.add_argument("--max-batch-size", type=int, metavar="N", help=help)
    help = "how long the first request of a batch waits for others (default: 2)"
    parser.add_argument("--wait-ms", type=float, metavar="MS", help=help)
    help = "triton: what clients call the model (default: the name of the bundle's folder)"
    parser.add_argument("--name", metavar="NAME", help=help)
    help = "triton: the most tokens of a text whose cache the server keeps"
    parser.add_argument("--max-length", type=int, metavar="N", help=help)


def run(arguments):
    """Writes the version and prints where it is; returns the exit status."""
    batching = _batching(arguments)
    if arguments.server == "triton":
        from keras_transformer.export.engines.triton.write import write_triton

        options = {"name": arguments.name, "max_length": arguments.max_length, "batching": batching}
        for path in write_triton(arguments.bundle, arguments.out, version=arguments.number, **options):
            print(path)
        return 0
    from keras_transformer.export.engines.tensorflow_serving.write import write_serving

    print(write_serving(arguments.bundle, arguments.out, arguments.number, arguments.default, batching))
    return 0


def _batching(arguments):
    """The `Batching` that was asked for, None where it was not; refuses the options of the other server."""
    from keras_transformer.export.serving.batching import Batching

    if arguments.server == "triton" and arguments.default is not None:
        raise ExportError("--default is for tensorflow: Triton has a model for each signature")
    if arguments.server != "triton" and (arguments.name, arguments.max_length) != (None, None):
        raise ExportError("--name and --max-length are for triton")
    given = {"max_batch_size": arguments.max_batch_size, "wait_ms": arguments.wait_ms}
    given = {name: value for name, value in given.items() if value is not None}
    return Batching(**given) if given else None
