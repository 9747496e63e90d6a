"""Makes the URL of Penstock's database from an entry of Django's `DATABASES`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from penstock.errors import ConfigurationError

NOT_FOR_LIBPQ = frozenset(
    {
        "assume_role",
        "client_encoding",
        "context",
        "cursor_factory",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "server_side_binding",
    }
)
"""OPTIONS of Django's PostgreSQL backend that are its own, or that Penstock sets by itself."""
FOR_PYMYSQL = frozenset(
    {"charset", "connect_timeout", "read_default_file", "read_default_group", "unix_socket"}
)
"""OPTIONS of Django's MySQL backend that PyMySQL takes as they are."""
SSL_FILES = {
    "ca": "ssl_ca",
    "cert": "ssl_cert",
    "key": "ssl_key",
    "capath": "ssl_capath",
    "cipher": "ssl_cipher",
}


def database_url(alias: str, vendor: str, entry: Mapping[str, Any]) -> str:
    """The URL for an entry of DATABASES, whose backend says which kind of database it is."""
    if (spell := SPELLINGS.get(vendor)) is not None:
        return spell(entry)
    raise ConfigurationError(
        f"DATABASES[{alias!r}] is a {vendor} database, which Penstock does not know. Name another alias: "
        'PENSTOCK = {"DATABASE": "..."}'
    )


def _postgresql(entry: Mapping[str, Any]) -> str:
    options = {
        name: value
        for name, value in _options(entry).items()
        if name not in NOT_FOR_LIBPQ and isinstance(value, str | int)
    }
    hosts = str(entry.get("HOST") or "").split(",")
    ports = str(entry.get("PORT") or "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places = ",".join(_place(host, port) for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{_user(entry)}{places}/{_name(entry)}{_query(options)}"


def _mysql(entry: Mapping[str, Any]) -> str:
    options = _options(entry)
    query = {name: value for name, value in options.items() if name in FOR_PYMYSQL}
    ssl = options.get("ssl")
    if isinstance(ssl, Mapping):
        query |= {SSL_FILES[name]: value for name, value in ssl.items() if name in SSL_FILES}
    host = str(entry.get("HOST") or "")
    if host.startswith("/"):
        query, host = query | {"unix_socket": host}, ""
    place = _place(host or "localhost", str(entry.get("PORT") or ""))
    return f"mysql://{_user(entry)}{place}/{_name(entry)}{_query(query)}"


def _sqlite(entry: Mapping[str, Any]) -> str:
    name = os.fspath(entry.get("NAME") or ":memory:")
    if not name.startswith("file:"):
        return f"sqlite:///{quote(name)}"
    path, _, query = name.partition("?")
    return f"sqlite:///{path}?{query}{'&' if query else ''}uri=true"


SPELLINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
}


def _options(entry: Mapping[str, Any]) -> dict[str, Any]:
    return dict(entry.get("OPTIONS") or {})


def _user(entry: Mapping[str, Any]) -> str:
    user, password = str(entry.get("USER") or ""), str(entry.get("PASSWORD") or "")
    if not user and not password:
        return ""
    return f"{quote(user, safe='')}{':' if password else ''}{quote(password, safe='')}@"


def _place(host: str, port: str) -> str:
    named = f"[{host}]" if ":" in host and not host.startswith("/") else quote(host, safe="")
    return f"{named}:{port}" if port else named


def _name(entry: Mapping[str, Any]) -> str:
    return quote(str(entry.get("NAME") or ""), safe="")


def _query(parameters: Mapping[str, Any]) -> str:
    return f"?{urlencode(parameters)}" if parameters else ""
