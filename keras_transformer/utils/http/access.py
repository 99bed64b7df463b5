"""Who may send requests to a server: a key, and the hosts and origins that requests name."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import Scope

KEY_VARIABLE = "KERAS_TRANSFORMER_API_KEY"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# What an orchestrator asks without a key. They tell nothing but whether the server runs.
_OPEN = ("/health", "/v2/health/live", "/v2/health/ready")


class AccessError(Exception):
    """A request that is refused before it is read.

    Args:
        status: int: HTTP status.
        reason: str.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclasses.dataclass(frozen=True)
class Access:
    """Who may send requests to a server.

    Args:
        api_key: str or None: requests need the header `Authorization: Bearer KEY`, except those for health. None: no key.
        hosts: tuple of str or None: names that the header Host may have, with any port. A page of another site that makes a
            browser resolve its own name to this machine is refused. None: any.
        origins: tuple of str: values that the header Origin may have, such as `"https://app.example"`, or names of hosts,
            with any scheme and port. Browsers send it for the page that makes the request; others do not send it. Default
            (): none.

    Example:

    >>> Access.of_address("127.0.0.1").hosts
    ('localhost', '127.0.0.1', '::1')
    >>> Access.of_address("0.0.0.0", hosts=["models.example"]).hosts
    ('models.example',)
    """

    api_key: str | None = dataclasses.field(default=None, repr=False)
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable() and self.api_key):
            raise ValueError("the API key must be printable ASCII, and not empty")

    @classmethod
    def of_address(cls, host: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Access:
        """The access to a server by the address that it listens on, with the key of `KERAS_TRANSFORMER_API_KEY`.

        Args:
            host: str. A server on a loopback address is addressed as `LOOPBACK`, and pages of this machine may ask it.
            hosts, origins: further ones.

        Raises:
            ValueError: the key is empty, or not printable ASCII.
        """
        local = LOOPBACK if is_loopback(host) else ()
        named = tuple(dict.fromkeys((*local, *(each.lower() for each in hosts))))
        allowed = tuple(dict.fromkeys((*local, *(each.lower().rstrip("/") for each in origins))))
        return cls(os.environ.get(KEY_VARIABLE), named or None, allowed)

    def check(self, scope: Scope, needs_key: bool = True) -> None:
        """Checks the headers of a request.

        Args:
            scope: the ASGI scope.
            needs_key: bool. False for a question to which a browser adds no key.

        Raises:
            AccessError: 403 for a host or an origin, 401 for the key.
        """
        given: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"authorization": []}
        for name, value in scope["headers"]:
            if name in given:
                given[name].append(value.decode("latin-1"))
        hosts, origins, keys = given.values()
        if self.hosts is not None and (len(hosts) != 1 or host_name(hosts[0]) not in self.hosts):
            raise AccessError(
                403, f"the host {', '.join(hosts)!r:.100} is not allowed; allowed: {', '.join(self.hosts)}"
            )
        for origin in origins:
            if not self.allows_origin(origin):
                raise AccessError(403, f"the origin {origin!r:.100} is not allowed")
        if needs_key and scope["path"] not in _OPEN:
            self.check_key(keys)

    def check_key(self, given: list[str]) -> None:
        """Checks the values of the header Authorization.

        Raises:
            AccessError: 401.
        """
        if self.api_key is None:
            return
        # The name of a scheme is in any case, RFC 9110. The key is compared in constant time: the time tells nothing about
        # how much of it is right.
        scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        is_right = hmac.compare_digest(key.strip().encode("latin-1", "replace"), self.api_key.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise AccessError(401, "the API key is missing or wrong: send the header 'Authorization: Bearer KEY'")

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of an origin may send requests."""
        origin = origin.lower()
        try:
            name = urlsplit(origin).hostname
        except ValueError:
            return False
        return origin in self.origins or (name is not None and name in self.origins)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a header Host, without its port.

    >>> host_name("Localhost:8000"), host_name("[::1]:80"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header if header.count(":") > 1 else header.partition(":")[0]
