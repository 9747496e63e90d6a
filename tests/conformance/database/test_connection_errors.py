"""database/error_advice: wrong URLs, databases and users at the first connection; the message says what to do."""

from collections.abc import Callable

import pymysql
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.errors import ConfigurationError, DatabaseUnavailable, JobFailed

AppOn = Callable[..., Penstock]


def elsewhere(url: str, **changes: str) -> str:
    return make_url(url).set(**changes).render_as_string(hide_password=False)  # type: ignore[arg-type]


def test_a_path_is_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="for a SQLite file sqlite:///FILE"):
        Penstock("shop.db")
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "shop.db")
    with pytest.raises(
        ConfigurationError, match="PENSTOCK_DATABASE_URL: .* for a SQLite file sqlite:///FILE"
    ):
        Penstock()


def test_a_database_that_the_server_does_not_have(app_on: AppOn, postgres_url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="Create that database"):
        app_on(elsewhere(postgres_url, database="nothing")).migrate()


def test_a_database_that_mariadb_does_not_have(app_on: AppOn, mariadb_url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="Create that database"):
        app_on(elsewhere(mariadb_url, database="nothing")).migrate()


@pytest.mark.parametrize("option", ["nothing=1", "read_timeout=soon", "ssl_ca=/nowhere.pem"])
def test_an_option_that_the_driver_of_mariadb_refuses(app_on: AppOn, mariadb_url: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no connection can be made by mysql.* behind the \?"):
        app_on(f"{mariadb_url.partition('?')[0]}?{option}").migrate()


@pytest.mark.parametrize("option", ["nothing=1", "sslmode=perhaps"])
def test_an_option_that_postgres_refuses(app_on: AppOn, postgres_url: str, option: str) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"Correct what the URL says behind the \?"):
        app_on(f"{postgres_url}?{option}").migrate()


def test_a_url_that_was_read_from_a_file_ends_with_its_line(
    app_on: AppOn, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line end was taken for a part of the name; on SQLite that was another file, which no worker served."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", f"{database_url}\n")
    assert (
        app_on(None).database.url
        == app_on(f" {database_url}").database.url
        == app_on(database_url).database.url
    )


def test_a_user_who_is_not_known(app_on: AppOn, postgres_url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="Correct the user or the password"):
        app_on(elsewhere(postgres_url, username="nobody")).migrate()


def test_a_user_whom_mariadb_does_not_know(app_on: AppOn, mariadb_url: str) -> None:
    """MySQL's passwords do not travel in the clear: without TLS another package has to encrypt them."""
    with pytest.raises(
        DatabaseUnavailable, match="Correct the user or the password|pip install cryptography"
    ):
        app_on(elsewhere(mariadb_url, username="nobody", password="wrong")).migrate()


@pytest.mark.parametrize("options", ["", "?ssl_disabled=1"])
def test_a_password_that_mysql_wants_encrypted(
    app_on: AppOn, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    """Who lacks what encrypts it is told so by the driver, before anything is sent."""

    def refuse(*_: object) -> None:
        raise RuntimeError("'cryptography' package is required for sha256_password or caching_sha2_password")

    monkeypatch.setattr(pymysql.connections.Connection, "connect", refuse)
    with pytest.raises(DatabaseUnavailable, match="pip install cryptography"):
        app_on(f"mysql://ann:secret@localhost/shop{options}").migrate()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("KeyboardInterrupt: ", "(retries_exhausted): KeyboardInterrupt. job.attempts()"),
        ("ValueError: Too large.", "(retries_exhausted): ValueError: Too large. job.attempts()"),
        ("", "(retries_exhausted). job.attempts()"),
    ],
)
def test_a_failure_is_told_as_a_sentence(error: str, told: str) -> None:
    assert told in str(JobFailed("1", "retries_exhausted", error))
