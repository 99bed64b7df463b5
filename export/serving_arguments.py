"""What the command `serving` takes beside the bundle and its place."""

from keras_transformer.export.errors import ExportError


def add_arguments(parser):
    """Adds the server, how it puts requests together, and what Triton alone takes."""
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


def read_batching(arguments):
    """The `Batching` that was asked for; None where it was not.

    Raises:
        ExportError: a figure out of range; an option of the other server.
    """
    from keras_transformer.export.batching import Batching

    if arguments.server == "triton" and arguments.default is not None:
        raise ExportError("--default is for tensorflow: Triton has a model for each signature")
    if arguments.server != "triton" and (arguments.name, arguments.max_length) != (None, None):
        raise ExportError("--name and --max-length are for triton")
    given = {"max_batch_size": arguments.max_batch_size, "wait_ms": arguments.wait_ms}
    given = {name: value for name, value in given.items() if value is not None}
    return Batching(**given) if given else None
