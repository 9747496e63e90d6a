"""database/url: Database URLs: what SQLAlchemy makes of them, we do too; and every form of several hosts that libpq
takes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from sqlalchemy import create_engine, make_url

from penstock import Penstock
from penstock.database.mysql import MySql
from penstock.database.url import for_libpq, parse
from penstock.errors import ConfigurationError
from penstock.settings import Settings

words = some.text("abcXYZ019-._~%20", min_size=1, max_size=8).filter(lambda word: "%" not in word)
secrets = some.text("abc:/#?[]%41%40!$&'()*+,;= ", max_size=12)
WRITABLE = {"target_session_attrs": "read-write"}


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("postgresql://a:1,b:2/shop", {"host": "a,b", "port": "1,2", "dbname": "shop"} | WRITABLE),
        ("postgresql://%2Frun%2Fpg:1/shop", {"host": "/run/pg", "port": 1, "dbname": "shop"}),
        ("postgresql://a,b/shop", {"host": "a,b", "port": "5432,5432", "dbname": "shop"} | WRITABLE),
        (
            "postgres://ann:p%40ss@a:1,b/shop",
            {"host": "a,b", "port": "1,5432", "dbname": "shop", "user": "ann", "password": "p@ss"} | WRITABLE,
        ),
        ("postgresql://[::1]:1,b:2/shop", {"host": "::1,b", "port": "1,2", "dbname": "shop"} | WRITABLE),
        (
            "postgresql+psycopg://a:1,b:2,c:3/shop?target_session_attrs=primary&sslmode=require",
            {"host": "a,b,c", "port": "1,2,3", "dbname": "shop", "target_session_attrs": "primary"}
            | {"sslmode": "require"},
        ),
        (
            "postgresql://a:1,b:2?connect_timeout=3",
            {"host": "a,b", "port": "1,2", "connect_timeout": "3"} | WRITABLE,
        ),
        (
            "postgresql://a:1/shop?application_name=x,y",
            {"host": "a", "port": 1, "dbname": "shop", "application_name": "x,y"},
        ),
        (
            "postgresql+asyncpg://a:1/shop?ssl=require&prepared_statement_cache_size=0&timeout=3",
            {"host": "a", "port": 1, "dbname": "shop", "sslmode": "require", "connect_timeout": "3"},
        ),
        (
            "postgresql+asyncpg://a:1/shop?ssl=true",
            {"host": "a", "port": 1, "dbname": "shop", "sslmode": "require"},
        ),
    ],
)
def test_several_hosts_reach_the_driver(url: str, given: dict[str, object]) -> None:
    assert for_libpq(parse(url)) == given


@pytest.mark.parametrize(
    "url", ["postgresql://a:1,/shop", "postgresql://a:x,b:2/shop", "postgresql://,/shop"]
)
def test_half_a_host_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not a database URL"):
        parse(url)


@pytest.mark.parametrize(
    "place", ["h:abc", "h:99999", "h:0", "h:-1", "h:" + "9" * 5000, "[::1]:x", "a:1,b:70000"]
)
@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
def test_a_wrong_port_is_named(backend: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match="its port is not a number from 1 to 65535"):
        parse(f"{backend}://{place}/db")


def test_on_mysql_a_database_must_be_named() -> None:
    """It was found out by an assertion of SQLAlchemy's."""
    for url in ("mysql://root@localhost", "mysql://root:secret@localhost/"):
        with pytest.raises(
            ConfigurationError, match=r"names no database. Use mysql://user@host/database"
        ) as refused:
            Penstock(url)
        assert "secret" not in str(refused.value)
    Penstock("mysql://root@localhost/?read_default_file=~/.my.cnf")


def test_several_hosts_of_mysql() -> None:
    found = parse("mysql://ann@a,[::1]:3307/shop")
    assert found.hosts == (("a", 3306), ("::1", 3307))
    assert found.parts == {"host": "a", "port": 3306, "user": "ann", "database": "shop"}
    assert not found.query
    assert parse("mysql://ann@a/shop").hosts == ()
    with pytest.raises(ConfigurationError, match="on no host"):
        parse("sqlite://a,b/shop")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///shop",
        "postgresql://ann@/shop",
        "postgresql://ann:@a/shop",
        "postgresql://ann:p%40s:s/w%2Fd#x@a:1/shop?sslmode=require&options=-c%20x%3D1",
        "postgresql://[::1]:5433/shop",
        "postgresql://[fe80::1]/shop",
        "postgresql:///shop?host=/var/run/postgresql",
        "postgresql:///shop?host=a:1&host=b:2",
        "postgresql:///shop?host=a,b&port=1,2",
        "postgresql://a/shop?connect_timeout=3&application_name=",
        "mysql://root@localhost/shop",
        "mysql+pymysql://root:x@localhost:3307/shop?charset=utf8mb4&ssl_ca=/ca.pem",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////tmp/a b/pen%20stock.db",
        "sqlite:///file:x?mode=memory&uri=true",
    ],
)
def test_it_is_read_as_sqlalchemy_reads_it(url: str) -> None:
    found = parse(url)
    theirs = make_url(url).set(drivername=found.driver)
    assert found.as_sqlalchemy() == theirs
    if found.backend == "postgresql":
        wanted = theirs.get_dialect()().create_connect_args(theirs)[1]
        assert for_libpq(found) == {name: value for name, value in wanted.items() if name != "context"}


@given(words, secrets, words, some.integers(1, 65535), words)
def test_whatever_the_password(user: str, password: str, host: str, port: int, database: str) -> None:
    url = f"postgresql+psycopg://{user}:{password}@{host}:{port}/{database}"
    assert parse(url).as_sqlalchemy() == make_url(url)


def test_mysql_is_reached_as_sqlalchemy_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a driver is given is the same by either way."""
    found: list[dict[str, object]] = []
    monkeypatch.setattr(MySql, "_reached", lambda _, given: found.append(given))
    url, settings = parse("mysql://ann:x@a:3307/shop"), Settings.load(environ={})
    MySql(10, 5).open(url, settings)
    theirs = url.as_sqlalchemy()
    engine = create_engine(theirs, **MySql(10, 5).engine_options(url, settings))
    given = engine.dialect.create_connect_args(theirs)[1]
    MySql(10, 5).connect(**given | MySql(10, 5).engine_options(url, settings)["connect_args"])
    assert found[0] == found[1]
