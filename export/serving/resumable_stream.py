"""A stream of text that is begun again, after what wrote it has died, and goes on where the client has it."""

import collections
import json

_PREFIX, _SUFFIX = b"data: ", b"\n\n"
_HEAD = ("id", "created")


class ResumableStream:
    """Lets each event of a stream of completions through once, however often the stream is begun.

    The streams must be alike: the same model, prompt and seed. Choices may come in any order.

    Example:

    >>> events = [b'data: {"id": "a", "choices": [{"index": 0, "text": "%s"}]}\\n\\n' % text for text in (b"x", b"y")]
    >>> stream = ResumableStream()
    >>> stream.take(events[0]) is not None
    True
    >>> stream.begin_again()
    >>> [stream.take(event.replace(b'"a"', b'"b"')) for event in events]
    [None, b'data: {"id": "a", "choices": [{"index": 0, "text": "y"}]}\\n\\n']
    """

    def __init__(self):
        self._sent = collections.Counter()
        self._behind = collections.Counter()
        self._head = None

    def begin_again(self):
        """Says that the next event is the first of another stream."""
        self._behind = self._sent.copy()

    def take(self, event):
        """What the client is sent of an event, bytes; None where it has it already."""
        data = event.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        record = None if data == b"[DONE]" else json.loads(data)
        choices = record and record.get("choices")
        if not choices:
            return event if record is None else self._written(record)
        index = choices[0]["index"]
        if self._behind[index]:
            self._behind[index] -= 1
            return None
        self._sent[index] += 1
        return self._written(record)

    def _written(self, record):
        """The event under the name that the client knows the completion by."""
        if self._head is None:
            self._head = {name: record[name] for name in _HEAD if name in record}
        known = {name: value for name, value in self._head.items() if name in record}
        return _PREFIX + json.dumps({**record, **known}).encode() + _SUFFIX
