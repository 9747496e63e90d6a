"""URLs of PostgreSQL with several hosts: every form that libpq takes, and what the driver is given."""

import pytest

from penstock.database.url import connect_arguments, parse
from penstock.errors import ConfigurationError

WRITABLE = {"target_session_attrs": "read-write"}


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("postgresql://a:1,b:2/shop", {"host": "a,b", "port": "1,2", "dbname": "shop"} | WRITABLE),
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
    ],
)
def test_several_hosts_reach_the_driver(url: str, given: dict[str, object]) -> None:
    assert connect_arguments(parse(url)) == given


@pytest.mark.parametrize(
    "url", ["postgresql://a:1,/shop", "postgresql://a:x,b:2/shop", "postgresql://,/shop"]
)
def test_half_a_host_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not a database URL"):
        parse(url)


def test_several_hosts_are_for_postgresql() -> None:
    with pytest.raises(ConfigurationError, match="PostgreSQL only"):
        parse("mysql://a,b/shop")
