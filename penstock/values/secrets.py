"""Hides the secrets of database URLs, in whatever form they are written.

Only parts that are known to be safe are shown: never the text between the first colon and the last @, and behind
the question mark only a few options have values that are shown. A URL that is wrong is treated in the same way.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"
SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/+")
OPTION = re.compile(r"([?&;])([^=&;]*)=([^&;]*)")
SHOWN_OPTIONS = frozenset(
    {
        "application_name",
        "charset",
        "connect_timeout",
        "cache",
        "client_encoding",
        "database",
        "db",
        "dbname",
        "gssencmode",
        "host",
        "hostaddr",
        "load_balance_hosts",
        "mode",
        "options",
        "port",
        "read_timeout",
        "ssl",
        "ssl_disabled",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
        "unix_socket",
        "uri",
        "user",
        "write_timeout",
    }
)


def without_secrets(url: str) -> str:
    """A URL as it may be shown."""
    head, _, rest = _login(url)
    return OPTION.sub(_option, f"{head}:{HIDDEN}@{rest}" if head is not None else rest)


def hidden(text: str, *urls: str | None) -> str:
    """A text, such as a driver's error, without the secrets of these URLs."""
    for secret in sorted({one for url in urls if url for one in _secrets(url)}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def _option(match: re.Match[str]) -> str:
    mark, name, value = match[1], match[2], match[3]
    return f"{mark}{name}={value if _is_shown(name) else HIDDEN}"


def _login(url: str) -> tuple[str | None, str, str]:
    """The text before a password, the password, and the text after it; the first is None if there is no password."""
    scheme = SCHEME.match(url)
    start = scheme.end() if scheme is not None else 0
    before, at, after = url[start:].rpartition("@")
    user, colon, password = before.partition(":")
    if not (at and colon):
        return None, "", url
    return url[:start] + user, password, after


def _secrets(url: str) -> set[str]:
    """Everything that `without_secrets` hides, encoded as in the URL and decoded."""
    _, password, rest = _login(url)
    found = {password, *[m[3] for m in OPTION.finditer(rest) if not _is_shown(m[2])]}
    plain = {unquote(one) for one in found} | {unquote_plus(one) for one in found}
    # A driver may split a URL at another place than its author meant.
    parts = {part for one in found | plain for part in re.split(r"[@/:#%?&=;]", one) if len(part) > 3}
    return {one for one in found | plain | parts if len(one) > 1}


def _is_shown(option: str) -> bool:
    return unquote_plus(option).strip().lower() in SHOWN_OPTIONS
