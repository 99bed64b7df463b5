"""Checks of the regular expressions of tokenizer files, which the engine of the `tokenizers` library runs without limits."""

from __future__ import annotations

from typing import NamedTuple

from keras_transformer.text.errors import InvalidTokenizerError

_MAX_LENGTH, _MAX_DEPTH = 4096, 32
_ZERO_WIDTH = frozenset("bBAzZGK")
_BACKREFERENCES = frozenset("123456789kg")
_LOOKAROUNDS = ("?=", "?!", "?<=", "?<!")
_MANY = 1000


class _Part(NamedTuple):
    """What is known of a part of an expression: the fewest characters that it matches, and whether it is ambiguous."""

    width: int
    is_ambiguous: bool


def fewest_characters(pattern: str) -> int:
    """Returns the fewest characters that an expression matches, and refuses those that may take exponential time.

    These are repeated groups that contain a repetition or alternatives, such as `(a+)+`, and backreferences.

    Raises:
        InvalidTokenizerError: the expression is too long, malformed, or may take exponential time.

    Example:

    >>> fewest_characters(r" ?[^\\s]+|x{3,}")
    1
    """
    if len(pattern) > _MAX_LENGTH:
        raise InvalidTokenizerError(f"A regular expression of {len(pattern)} characters; the most are {_MAX_LENGTH}.")
    scanner = _Scanner(pattern)
    part = scanner.alternatives(0)
    if scanner.at < len(pattern):
        raise scanner.error("has an unmatched ')'")
    return part.width


class _Scanner:
    """Scans an expression from its beginning to its end."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def error(self, reason: str) -> InvalidTokenizerError:
        return InvalidTokenizerError(f"The regular expression {self.pattern[:60]!r} {reason}.")

    def alternatives(self, depth: int) -> _Part:
        """Scans alternatives, up to the end of their group."""
        if depth > _MAX_DEPTH:
            raise self.error("is nested too deeply")
        parts = [self._sequence(depth)]
        while self._next() == "|":
            self.at += 1
            parts.append(self._sequence(depth))
        return _Part(min(each.width for each in parts), len(parts) > 1 or parts[0].is_ambiguous)

    def _next(self, length: int = 1) -> str:
        return self.pattern[self.at : self.at + length]

    def _sequence(self, depth: int) -> _Part:
        width, is_ambiguous = 0, False
        while self._next() not in ("", "|", ")"):
            atom = self._atom(depth)
            low, high = self._quantifier()
            if high > 1 and atom.is_ambiguous:
                raise self.error("repeats a group with repetitions or alternatives, which may take exponential time")
            width += low * atom.width
            is_ambiguous |= atom.is_ambiguous or low != high
        return _Part(min(width, _MANY), is_ambiguous)

    def _atom(self, depth: int) -> _Part:
        character = self._next()
        self.at += 1
        if character == "(":
            return self._group(depth)
        if character == "[":
            self._class()
        elif character == "\\":
            return _Part(self._escape(), False)
        elif character in "^$":
            return _Part(0, False)
        return _Part(1, False)

    def _group(self, depth: int) -> _Part:
        if self._next(2) == "?#":
            self._skip_to(")")
            return _Part(0, False)
        is_lookaround = any(self._next(len(each)) == each for each in _LOOKAROUNDS)
        if self._next() == "?":
            # To the colon, or to the end of the flags or of the kind or name of the group.
            while self._next() not in ("", ":", ">", "=", "!", ")"):
                self.at += 1
            if self._next() not in ("", ")"):
                self.at += 1
        part = self.alternatives(depth + 1)
        if self._next() != ")":
            raise self.error("has an unmatched '('")
        self.at += 1
        return _Part(0 if is_lookaround else part.width, part.is_ambiguous)

    def _class(self) -> None:
        """Skips a class of characters, which may contain others."""
        depth = 1
        self.at += self._next() == "^"
        self.at += self._next() == "]"
        while depth:
            character = self._next()
            if not character:
                raise self.error("has an unmatched '['")
            self.at += 2 if character == "\\" else 1
            depth += (character == "[") - (character == "]")

    def _escape(self) -> int:
        """Skips an escape. Returns the number of characters that it matches."""
        character = self._next()
        self.at += 1
        if character in _BACKREFERENCES:
            raise self.error("has a backreference")
        if self._next() == "{" and character in "pPxuNo":
            self._skip_to("}")
        return 0 if character in _ZERO_WIDTH else 1

    def _skip_to(self, end: str) -> None:
        found = self.pattern.find(end, self.at)
        if found < 0:
            raise self.error(f"has no {end!r} at its end")
        self.at = found + 1

    def _quantifier(self) -> tuple[int, int]:
        """Skips a quantifier, if there is one. Returns the fewest and the most repetitions."""
        character = self._next()
        bounds = {"*": (0, _MANY), "+": (1, _MANY), "?": (0, 1)}.get(character)
        if bounds is not None:
            self.at += 1
        elif character == "{":
            bounds = self._bounds()
        if bounds is None:
            return 1, 1
        while self._next() and self._next() in "?+*":  # Lazy or possessive; another one would repeat the repetition.
            if self._next() == "*" or self._next(2) in ("??", "++", "?+", "+?"):
                raise self.error("repeats a repetition")
            self.at += 1
        return bounds

    def _bounds(self) -> tuple[int, int] | None:
        """Skips `{low,high}`; None, without a move, for a brace that is a character."""
        inside, close, _ = self.pattern[self.at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not close or not all(each.isdigit() and len(each) < 6 for each in (low, high) if each) or not (low or high):
            return None
        self.at += len(inside) + 2
        least = int(low or 0)
        return least, (int(high) if high else _MANY) if comma else least
