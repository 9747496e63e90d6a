"""database/diagnostics: a standby answers every question and takes no write: the caller is told so."""

from collections.abc import Callable
from contextlib import closing

import pymysql
import pytest

from penstock import Penstock
from penstock.database.database import Database
from penstock.database.diagnostics import measurements
from penstock.errors import DatabaseUnavailable
from tests.chaos.standby import Pair
from tests.process.scenes import make_app
from tests.servers.mariadb import Mariadb

pytestmark = pytest.mark.process


def advice_on_writes(database: Database) -> str | None:
    (found,) = [vital.advice for vital in measurements(database) if vital.name == "writes"]
    return found


def test_postgres(app_on: Callable[..., Penstock], pair: Pair) -> None:
    """`doctor` said that all was well, and an enqueue: cannot execute NOTIFY during recovery."""
    primary = make_app(pair.primary.create_database("shop"))
    primary.prepare()
    assert advice_on_writes(primary.database) is None
    pair.follow()
    assert pair.standby is not None
    app = make_app(pair.standby.url("shop"))
    for number in (1, 2):  # the second says that there is something, the first need not
        with pytest.raises(DatabaseUnavailable, match=r"standby|let the URL lead to the primary"):
            app.tasks["double"].options(key=f"a{number}").enqueue(number)
    with pytest.raises(DatabaseUnavailable, match="This server is a standby"):
        app.database.in_transaction(lambda tx: tx.run("NOTIFY something"))
    assert "This server is a standby" in str(advice_on_writes(app.database))
    assert app.database.read(lambda tx: tx.row("SELECT COUNT(*) FROM {jobs}")) == (0,)
    primary.close()
    app.close()


def test_mariadb(app_on: Callable[..., Penstock], mariadb_server: Mariadb) -> None:
    app = app_on(mariadb_server.create_database("shop"))
    app.migrate()
    assert advice_on_writes(app.database) is None
    with closing(pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root")) as admin:
        admin.cursor().execute("SET GLOBAL read_only = 1")
    assert "primary" in str(advice_on_writes(app.database))
