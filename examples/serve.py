"""Serves any bundle over HTTP with Ray Serve: several replicas, requests computed together, texts as streams.

    pip install ".[serve]"
    python examples/serve.py bundle --replicas 2
    curl localhost:8000/health
    curl localhost:8000/metrics
    curl localhost:8000/v1/models                  # its name; /v1/models/NAME: what it takes and gives

    curl localhost:8000/v1/models/bundle:predict -d '{"inputs": {"x": [[1, 2, 3, 4]]}}'
    curl localhost:8000/v1/completions -d '{"prompt": "ROMEO:", "max_tokens": 64, "stream": true}'

It runs until it is interrupted; what has been accepted is answered first.
"""

import argparse
import signal
import threading

import ray
from ray import serve

from keras_transformer.export import Batching, ExportError, Limits, ray_application


def main():
    arguments = parse_arguments()
    try:
        app = ray_application(
            arguments.bundle,
            name=arguments.name,
            backend=arguments.backend,
            num_replicas=arguments.replicas,
            num_threads=arguments.threads,
            batching=Batching(arguments.max_batch_size, arguments.wait_ms, arguments.max_waiting),
            limits=Limits(arguments.max_bytes, arguments.max_examples, arguments.timeout),
            num_gateways=arguments.gateways,
            cpus_per_replica=arguments.cpus,
        )
    except ExportError as error:
        raise SystemExit(f"error: {error}") from None
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    ray.init(include_dashboard=False, configure_logging=False, log_to_driver=arguments.verbose)
    serve.start(http_options={"host": arguments.host, "port": arguments.port})
    serve.run(app, name="keras_transformer")
    print(f"serving '{arguments.bundle}' at http://{arguments.host}:{arguments.port}", flush=True)
    stopped.wait()
    serve.shutdown()
    ray.shutdown()


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("bundle", help="what export wrote")
    parser.add_argument("--name", help="what clients call the model; the name of the bundle's folder when not given")
    parser.add_argument("--backend", default="onnx", choices=("onnx", "tflite", "saved_model"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--gateways", type=int, default=1, help="processes that speak HTTP")
    parser.add_argument("--threads", type=int, default=1, help="of one call")
    parser.add_argument(
        "--cpus", type=float, help="what Ray sets aside for a replica; as many as threads when not given"
    )
    parser.add_argument("--max-batch-size", type=int, default=32, help="the most examples, or texts, computed at once")
    parser.add_argument("--wait-ms", type=float, default=2.0, help="how long a request waits for others")
    parser.add_argument("--max-waiting", type=int, default=256, help="requests that wait; further ones get status 429")
    parser.add_argument("--max-bytes", type=int, default=4 << 20, help="of a body")
    parser.add_argument("--max-examples", type=int, default=256, help="of one request")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds until a request is given up")
    parser.add_argument("--verbose", action="store_true", help="show what the replicas print")
    return parser.parse_args()


if __name__ == "__main__":
    main()
