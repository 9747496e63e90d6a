"""database/dialect: our connections do not depend on settings of the server, the database or the role."""

from collections.abc import Callable
from datetime import datetime

import psycopg
import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, Table, func, insert, make_url, select, text

import penstock
from penstock import Penstock
from penstock.database.user.statements import Statements
from penstock.errors import PenstockError
from penstock.testing import drain

AppOn = Callable[..., Penstock]


def configure(url: str, *settings: str) -> str:
    """What every connection to this database begins with, from now on."""
    name = make_url(url).database
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in settings:
            connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    return url


@pytest.mark.parametrize("pooler", ["none", "session", "transaction"])
def test_dates_are_read_whatever_their_style(app_on: AppOn, postgres_url: str, pooler: str) -> None:
    """psycopg reads one style: reconcilers did nothing, for they read timestamps."""
    app = app_on(configure(postgres_url, "datestyle = 'German, DMY'"), pooler=pooler)
    table = Table(
        "orders", MetaData(), Column("id", Integer, primary_key=True), Column("at", DateTime(timezone=True))
    )

    @app.task
    def look() -> str:
        job = penstock.current()
        with job.transaction() as connection:
            table.metadata.create_all(connection)
            connection.execute(insert(table).values(id=1, at=func.now()))
            found = connection.execute(select(table.c.at)).scalar()
            job.complete(type(found).__name__)
        return ""

    job = look.enqueue()
    drain(app)
    assert job.result(timeout=0) == "datetime"
    with app.database.transaction() as tx:
        ((found,),) = Statements(app.database, tx).rows(select(table.c.at))
    assert isinstance(found, datetime)


def test_a_search_path_that_leads_nowhere_is_named(app_on: AppOn, postgres_url: str) -> None:
    url = configure(postgres_url, "search_path = ''")
    with pytest.raises(PenstockError, match="search_path of this user leads to no schema"):
        app_on(url, table_prefix="other_").migrate()
    app = app_on(url, schema="work")

    @app.task
    def double(number: int) -> int:
        return number * 2

    job = double.options(key="a").enqueue(2)
    assert drain(app) == 1
    assert job.result(timeout=0) == 4


def test_every_transaction_serializable(app_on: AppOn, postgres_url: str) -> None:
    app = app_on(configure(postgres_url, "default_transaction_isolation = 'serializable'"))

    @app.task
    def level() -> str:
        job = penstock.current()
        with job.transaction() as connection:
            job.complete(str(connection.execute(text("SHOW transaction_isolation")).scalar()))
        return ""

    job = level.enqueue()
    drain(app)
    assert job.result(timeout=0) == "serializable", "it is the user's to choose"
