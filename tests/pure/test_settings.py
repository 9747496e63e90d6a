"""settings: Settings: three sources, one check, and a hint for every mistake."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.settings import Settings
from penstock.values.parse import QueueLimit

NAMES = [field.name for field in dataclasses.fields(Settings)]


def load(environ: dict[str, str] | None = None, **overrides: Any) -> Settings:
    return Settings.load(environ=environ or {}, **overrides)


def test_the_defaults_are_valid_and_documented() -> None:
    settings = load()
    assert settings == Settings()
    assert settings.database_url == "sqlite:///penstock.db"
    assert (settings.heartbeat_interval, settings.reap_after, settings.shutdown_timeout) == (5, 30, 25)
    assert settings.payload_limit == 1024 * 1024
    assert settings.retention == 14 * 24 * 3600
    assert all(meaning.endswith(".") for meaning in Settings.meanings().values())


def test_an_argument_wins_over_the_environment_which_wins_over_the_default() -> None:
    environ = {"PENSTOCK_BATCH": "7", "PENSTOCK_CONCURRENCY": "9"}
    settings = load(environ, batch=3)
    assert (settings.batch, settings.concurrency, settings.processes) == (3, 9, 1)


def test_none_as_an_argument_means_unset_where_none_is_no_value() -> None:
    assert (
        load({"PENSTOCK_DATABASE_URL": "sqlite:///a.db"}, database_url=None).database_url == "sqlite:///a.db"
    )
    assert load({"PENSTOCK_RETENTION": "1d"}, retention=None).retention is None


def test_environment_texts_are_read_by_the_kind_of_setting() -> None:
    settings = load(
        {
            "PENSTOCK_AUTO_MIGRATE": "No",
            "PENSTOCK_LISTEN": "1",
            "PENSTOCK_BATCH": " 1_000 ",
            "PENSTOCK_POLL_INTERVAL": "250ms",
            "PENSTOCK_RETENTION": "none",
            "PENSTOCK_PAYLOAD_LIMIT": "2 MiB",
            "PENSTOCK_QUEUES": "mail:10,default",
            "PENSTOCK_LOG_LEVEL": "DEBUG",
            "PENSTOCK_CRASH_AT": "settled",
            "PENSTOCK_SCHEMA": "",
        }
    )
    assert (settings.auto_migrate, settings.listen, settings.batch) == (False, True, 1000)
    assert (settings.poll_interval, settings.retention, settings.payload_limit) == (0.25, None, 2**21)
    assert settings.queues == (QueueLimit("mail", 10), QueueLimit("default"))
    assert (settings.log_level, settings.crash_at, settings.schema) == ("debug", "settled", None)


def test_queues_may_be_given_as_names_limits_or_text() -> None:
    expected = (QueueLimit("a", 2), QueueLimit("b"))
    assert load(queues="a:2,b").queues == load(queues=[QueueLimit("a", 2), "b"]).queues == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_setting_is_refused_and_the_right_one_named(name: str) -> None:
    wrong = name + "x"
    with pytest.raises(ConfigurationError, match=f"{wrong!r}.*Did you mean {name!r}"):
        load(None, **{wrong: 1})
    with pytest.raises(ConfigurationError, match=f"PENSTOCK_{wrong.upper()} .*PENSTOCK_{name.upper()}'"):
        load({f"PENSTOCK_{wrong.upper()}": "1"})


def test_a_name_unlike_any_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigurationError, match=r"PENSTOCK_QQQQQQ is not a setting of Penstock$"):
        load({"PENSTOCK_QQQQQQ": "1"})


@pytest.mark.parametrize(
    "variable",
    [
        *("PENSTOCK_APP", "PENSTOCK_TEST_DATABASES", "PENSTOCK_SERVICE_HOST", "PENSTOCK_PORT", "HOME"),
        *("PENSTOCK_SERVICE_PORT_HTTP", "PENSTOCK_WEB_PORT_80_TCP_ADDR", "PENSTOCK_WEB_SERVICE_HOST"),
    ],
)
def test_variables_that_others_set_are_left_alone(variable: str) -> None:
    assert load({variable: "tcp://10.0.0.1:80"}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("batch", 0, "from 1 to 10000"),
        ("batch", "many", "whole number"),
        ("batch", 2.0, "whole number"),
        ("batch", True, "whole number"),
        ("auto_migrate", "perhaps", "true or false"),
        ("auto_migrate", 1, "true or false"),
        ("poll_interval", -1, "at least"),
        ("poll_interval", "soon", "duration"),
        ("poll_interval", [1], "seconds"),
        ("retention", "99999999999999d", "no more than a hundred years"),
        ("reap_after", 1e13, "no more than a hundred years"),
        ("statement_timeout", "30d", "from 0.1 to 604800"),
        ("lock_timeout", "8d", "from 0.1 to 604800"),
        ("connect_timeout", "800d", "from 0.1 to 604800"),
        ("payload_limit", 0, "at least 1"),
        ("log_level", "inf", "Did you mean 'info'"),
        ("pooler", "statement", "none, transaction"),
        ("table_prefix", "x; drop", "letters, digits"),
        ("schema", "9lives", "letters, digits"),
        ("queues", "a:b", "NAME:LIMIT"),
        ("queues", 5, "mail:10"),
        ("role", "boss", "all, worker"),
    ],
)
def test_a_wrong_value_is_refused_by_name_from_either_source(name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}=.*{re.escape(says)}"):
        load(**{name: value})
    if isinstance(value, str):
        with pytest.raises(ConfigurationError, match=f"^PENSTOCK_{name.upper()}=.*{re.escape(says)}"):
            load({f"PENSTOCK_{name.upper()}": value})


@pytest.mark.parametrize(
    ("url", "backend"),
    [
        ("postgresql://localhost/shop", "postgresql"),
        ("postgres://localhost/shop", "postgresql"),
        ("postgresql+psycopg://localhost/shop", "postgresql"),
        ("mysql://root@localhost/shop", "mysql"),
        ("mariadb://root@localhost/shop", "mysql"),
        ("mysql+pymysql://root@localhost/shop", "mysql"),
        ("sqlite:///work.db", "sqlite"),
        ("postgresql+asyncpg://localhost/shop", "postgresql"),
        ("postgresql+psycopg2://localhost/shop", "postgresql"),
        ("mysql+aiomysql://root@localhost/shop", "mysql"),
        ("mariadb+asyncmy://root@localhost/shop", "mysql"),
        ("sqlite+aiosqlite:///work.db", "sqlite"),
    ],
)
def test_known_database_urls(url: str, backend: str) -> None:
    assert load(database_url=url).backend == backend


def test_unknown_database_urls_are_refused_without_showing_them() -> None:
    for url in ("oracle://u:hunter2@h/x", "postgresql+odbc://u:hunter2@h/x", "hunter2", 5, ""):
        with pytest.raises(ConfigurationError, match="postgresql://") as caught:
            load(database_url=url)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"Did you mean 'postgresql\+psycopg2?'"):
        load(database_url="postgresql+psycopg3://h/x")


def test_passwords_are_never_shown() -> None:
    settings = load(database_url="postgresql://ann:p/w:x@h/shop", listen_url="postgresql://ann:p/w:x@h/shop")
    assert settings.shown_url == "postgresql://ann:***@h/shop"
    assert "p/w" not in repr(settings)
    assert load().shown_url == "sqlite:///penstock.db"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"heartbeat_interval": 5, "reap_after": 9}, "reap_after .* at least twice heartbeat_interval .* 10"),
        ({"lock_timeout": 31}, "lock_timeout .* statement_timeout"),
        ({"listen_url": "postgresql://h/x"}, "listen_url is for PostgreSQL"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load(**values)


def test_a_default_gives_way_to_what_was_said_about_its_neighbour() -> None:
    assert load(statement_timeout="5s").lock_timeout == 5
    assert load({"PENSTOCK_REAP_AFTER": "4s"}).heartbeat_interval == 2
    usual = load(statement_timeout=60, reap_after=60)
    assert (usual.lock_timeout, usual.heartbeat_interval) == (10, 5)


def test_a_part_of_a_name_is_enough_to_be_told_the_whole() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'database_url'"):
        load(url="sqlite://")


def test_listening_needs_a_way_around_a_transaction_pooler() -> None:
    url = "postgresql://h/x"
    assert load(database_url=url).listens
    assert not load(database_url=url, listen=False).listens
    assert not load(database_url=url, pooler="transaction").listens
    assert load(database_url=url, pooler="transaction", listen_url=url).listens
    assert not load().listens


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12)))
def test_any_text_is_either_read_or_refused_with_the_variable_named(written: dict[str, str]) -> None:
    environ = {f"PENSTOCK_{name.upper()}": text for name, text in written.items()}
    try:
        settings = load(environ)
    except ConfigurationError as error:
        message = str(error).lower()
    else:
        assert dataclasses.replace(settings) == settings
        return
    assert any(name in message for name in written)
