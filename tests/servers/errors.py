"""The one way in which a test server can be missing."""


class Unavailable(Exception):
    """This kind of server cannot be had here; the message says why and what would help."""
