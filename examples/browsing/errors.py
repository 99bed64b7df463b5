"""Exceptions of browsing. Every message is one line that names the cause."""


class BrowsingError(ValueError):
    """Base class of browsing errors.

    Attributes:
        note: str. What a browser shows of the error in its state: fixed words, nothing of a page or of an action.
    """

    note = "refused"


class InvalidActionError(BrowsingError):
    """A text that is no action, or one with an invalid argument."""

    note = "not an action"


class TextNotFoundError(BrowsingError):
    """`find` or `quote` of a text that is not there."""

    note = "not found"


class NoSuchLinkError(BrowsingError):
    """`open` of a number that no link of the view has, or `back` from the first page."""

    note = "no such link"


class ForbiddenAddressError(BrowsingError):
    """An address outside the corpus: another origin, a redirect, or one written in a way to hide that."""

    note = "forbidden"


class PageError(BrowsingError):
    """A page that does not exist, is too large, takes too long or is not HTML."""

    note = "no page"


class EpisodeEndedError(BrowsingError):
    """An action after the end of an episode."""

    note = "ended"


class CorpusError(BrowsingError):
    """A folder without HTML files, or an invalid argument of a corpus or a browser."""
