"""Streams of text that are restarted after a replica died, and continue where the client is."""

import collections
import json
from typing import Any

_PREFIX, _SUFFIX = b"data: ", b"\n\n"
_HEAD = ("id", "created")


class ResumableStream:
    """Filter that passes each event of a stream of completions once, although the stream may restart.

    The restarted streams must be equal: the same model, prompt and seed. Choices may be in any order.

    Example:

    >>> events = [b'data: {"id": "a", "choices": [{"index": 0, "text": "%s"}]}\\n\\n' % text for text in (b"x", b"y")]
    >>> stream = ResumableStream()
    >>> stream.filter(events[0]) is not None
    True
    >>> stream.restart()
    >>> [stream.filter(event.replace(b'"a"', b'"b"')) for event in events]
    [None, b'data: {"id": "a", "choices": [{"index": 0, "text": "y"}]}\\n\\n']
    """

    def __init__(self) -> None:
        self._sent: collections.Counter[int] = collections.Counter()
        self._behind: collections.Counter[int] = collections.Counter()
        self._head: dict[str, Any] | None = None

    def restart(self) -> None:
        """Declares that the next event is the first of a restarted stream."""
        self._behind = self._sent.copy()

    def filter(self, event: bytes) -> bytes | None:
        """Returns the bytes of an event for the client, or None if the client has the event already."""
        data = event.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        record = None if data == b"[DONE]" else json.loads(data)
        if record is None:
            return event
        choices = record.get("choices")
        if not choices:
            return self._written(record)
        index = choices[0]["index"]
        if self._behind[index]:
            self._behind[index] -= 1
            return None
        self._sent[index] += 1
        return self._written(record)

    def _written(self, record: dict[str, Any]) -> bytes:
        """The event with the id of the first stream."""
        if self._head is None:
            self._head = {name: record[name] for name in _HEAD if name in record}
        known = {name: value for name, value in self._head.items() if name in record}
        return _PREFIX + json.dumps({**record, **known}).encode() + _SUFFIX
