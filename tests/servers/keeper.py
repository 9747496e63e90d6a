"""Keeps one server for a whole test session, whichever pytest process asked for it first.

    python -m tests.servers.keeper postgres SESSION_FOLDER

Prints one JSON line: {"url": ...} or {"unavailable": reason}. Then waits for the session's owner to end,
however it ends: the owner holds a lock that the operating system takes from the dead.
"""

import fcntl
import json
import os
import sys
from pathlib import Path

from sqlalchemy import make_url

from tests.servers import pristine
from tests.servers.errors import Unavailable
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.server import Server

KINDS: dict[str, type[Postgres] | type[Mariadb]] = {"postgres": Postgres, "mariadb": Mariadb}
# Else the client makes a TLS context for every connection, at ten times the price of the rest of it, and this server
# has no TLS. Most tests with a server of their own connect as users do.
OPTIONS: dict[str, dict[str, str]] = {"postgres": {}, "mariadb": {"ssl_disabled": "1"}}


def main() -> None:
    kind, session = sys.argv[1], Path(sys.argv[2])
    pristine.FOLDER = session
    with (session / f"{kind}.alive").open("w") as alive:
        fcntl.lockf(alive, fcntl.LOCK_EX)
        try:
            with KINDS[kind](session / kind) as server:
                answer(url=cheap_url(server, ""))
                wait_for_the_end(session)
        except Unavailable as missing:
            answer(unavailable=str(missing))


def cheap_url(server: Server, database: str) -> str:
    url = make_url(server.url(database)).update_query_dict(OPTIONS[server.kind])
    return url.render_as_string(hide_password=False)


def answer(**words: str) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wait_for_the_end(session: Path) -> None:
    with (session / "owner").open() as owner:
        fcntl.lockf(owner, fcntl.LOCK_SH)


if __name__ == "__main__":
    main()
