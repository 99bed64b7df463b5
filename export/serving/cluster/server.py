"""A bundle on Ray Serve, with the HTTP application in this process."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import chosen_backend
from keras_transformer.export.serving.requests import Limits
from keras_transformer.utils.http.access import Access
from keras_transformer.utils.http.server import run_server

if TYPE_CHECKING:
    from keras_transformer.utils.types import Path

_NAME = "keras_transformer"
# Ray takes the address of another interface for 127.0.0.1, unless it is told that the platform has no clusters.
_ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_AUTH_MODE, _AUTH_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
_OPEN = (
    "WARNING: Ray's processes listen on every interface, and everyone who reaches them may run code: set RAY_AUTH_MODE=token"
    " and RAY_AUTH_TOKEN to a secret on every machine, or keep their ports behind a firewall."
)


def serve_with_ray(
    bundle: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    access: Access | None = None,
    on_start: Callable[[str], None] | None = None,
    ray_options: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Serves a bundle until SIGINT or SIGTERM, with replicas in processes of Ray, and answers what was accepted.

    The HTTP application is in this process: it stops to accept, waits for the responses of the replicas, and only then ends
    them. Without a cluster it starts Ray on this machine: its processes listen on 127.0.0.1, except for one port of each
    replica, and need a random token.

    Args:
        bundle: path of the bundle; every node of the cluster must have it there.
        host: str: address of the HTTP server. Default `"127.0.0.1"`: only this machine.
        port: int; 0 for a free one. Default 8000.
        access: `Access`, or None for that of the address: see `Access.of_address`.
        on_start: function of the URL, called when the server listens.
        ray_options: dict of options of `ray.init`. With `address` it joins a cluster, whose processes listen where that was
            started to: protect it with `RAY_AUTH_MODE=token`.
        options: `name`, `backend`, `num_replicas`, `num_threads`, `batching`, `limits`, `cpus_per_replica` and
            `engine_options` of `ray_application`.

    Raises:
        InvalidBundleError: the bundle does not exist, or lacks the backend.
        ExportError: a value is out of range.
        OSError: the address cannot be had.

    Example:

    ```python
    serve_with_ray("bundle", num_replicas=2)
    ```
    """
    if "num_gateways" in options:
        raise ExportError("num_gateways is for ray_application: this process is the gateway")
    joined = {"include_dashboard": False, "configure_logging": False, **(ray_options or {})}
    if "address" not in joined:
        _close_to_others()
    from keras_transformer.export.serving.cluster.application import (
        ray,
        ray_application,
        ray_gateway,
        serve,  # pyright: ignore[reportAttributeAccessIssue]
    )

    replicas = ray_application(bundle, num_gateways=0, **options)
    access = access or Access.of_address(host)
    ray.init(**joined)
    try:
        if os.environ.get(_AUTH_MODE) != "token":
            print(_OPEN, file=sys.stderr, flush=True)
        # No HTTP server of Ray: the one here reaches the replicas itself.
        serve.start(http_options={"location": "NoServer"})
        handle = serve.run(replicas, name=_NAME, route_prefix=None)
        name, backend = options.get("name"), chosen_backend(read_manifest(bundle), options.get("backend"))
        gateway = ray_gateway(handle, bundle, name, backend, options.get("limits") or Limits(), access)
        run_server(gateway.application, host, port, on_start=on_start)
    finally:
        serve.shutdown()
        ray.shutdown()


def _close_to_others() -> None:
    """Makes the processes of a Ray that is started here listen on 127.0.0.1, and need a token, which they inherit.

    Ray reads this when it is imported. One port of each replica is on every interface all the same: hence the token.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault(_ONE_MACHINE, "0")
    if _AUTH_MODE not in os.environ:
        os.environ[_AUTH_MODE] = "token"
        os.environ.setdefault(_AUTH_TOKEN, secrets.token_hex(32))
