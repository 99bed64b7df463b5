"""Serves a bundle over HTTP with Ray Serve: replicas in processes, on one machine or many.

    pip install ".[ray]"
    python examples/serve.py bundle --replicas 2
    curl localhost:8000/health
    curl localhost:8000/metrics
    curl localhost:8000/v1/models                  # its name; /v1/models/NAME: its inputs and outputs

    curl localhost:8000/v1/models/bundle:predict -d '{"inputs": {"x": [[1, 2, 3, 4]]}}'
    curl localhost:8000/v1/completions -d '{"prompt": "ROMEO:", "max_tokens": 64, "stream": true}'

The server runs until it is interrupted, and then answers the accepted requests before it stops. One machine needs no
cluster: `keras-transformer serve bundle` has the same API and is faster.

Requests need the key of the environment variable KERAS_TRANSFORMER_API_KEY, if it is set. Ray's own processes need a token,
which is drawn at the start. A cluster that --address joins must be started with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN:
without them everyone who reaches its ports may run code.
"""

import argparse

from keras_transformer.export import Access, Batching, ExportError, Limits, serve_with_ray


def main() -> None:
    arguments = parse_arguments()
    access = Access.of_address(arguments.host, arguments.allow_host, arguments.allow_origin)
    ray_options = {"log_to_driver": arguments.verbose}
    if arguments.address is not None:
        ray_options["address"] = arguments.address
    try:
        serve_with_ray(
            arguments.bundle,
            arguments.host,
            arguments.port,
            access=access,
            on_start=lambda url: print(f"serving '{arguments.bundle}' at {url}", flush=True),
            ray_options=ray_options,
            name=arguments.name,
            backend=arguments.backend,
            num_replicas=arguments.replicas,
            num_threads=arguments.threads,
            batching=Batching(arguments.max_batch_size, arguments.wait_ms, arguments.max_waiting),
            limits=Limits(arguments.max_bytes, arguments.max_examples, arguments.timeout),
            cpus_per_replica=arguments.cpus,
        )
    except ExportError as error:
        raise SystemExit(f"error: {error}") from None


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("bundle", help="directory written by export")
    parser.add_argument("--name", help="model name for clients; default: the directory name")
    parser.add_argument("--backend", default="onnx", choices=("onnx", "tflite", "saved_model"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--allow-host", action="append", default=[], help="name that requests may use for this server")
    parser.add_argument("--allow-origin", action="append", default=[], help="page of a browser that may send requests")
    parser.add_argument("--address", help="address of a Ray cluster; default: Ray on this machine alone")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads per call")
    parser.add_argument("--cpus", type=float, help="CPUs that Ray reserves per replica; default: --threads")
    parser.add_argument("--max-batch-size", type=int, default=32, help="maximum number of examples or texts per batch")
    parser.add_argument("--wait-ms", type=float, default=2.0, help="maximum time a request waits for its batch")
    parser.add_argument(
        "--max-waiting", type=int, default=256, help="maximum queue length; further requests get status 429"
    )
    parser.add_argument("--max-bytes", type=int, default=4 << 20, help="maximum size of a request body")
    parser.add_argument("--max-examples", type=int, default=256, help="maximum number of examples per request")
    parser.add_argument("--timeout", type=float, default=60.0, help="timeout of a request in seconds")
    parser.add_argument("--verbose", action="store_true", help="show the output of the replicas")
    return parser.parse_args()


if __name__ == "__main__":
    main()
