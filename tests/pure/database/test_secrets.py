"""values/secrets: whatever form a database URL has, right or wrong, no secret in it is ever shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Penstock
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.values.secrets import hidden, without_secrets

SECRET = "hunter2SECRET"
FORMS = [
    "postgresql://postgres:{}@127.0.0.1:1/db",
    "postgresql://postgres@127.0.0.1:1/db?password={}",
    "postgresql://127.0.0.1:1/db?user=x&password={}&sslmode=disable",
    "postgresql://a/b:{}@127.0.0.1:1/db",
    "postgresql://us@er:{}@127.0.0.1:1/db",
    "mysql://root:{}@127.0.0.1:1/db",
    "mysql://root@127.0.0.1:1/db?password={}",
    "mysql://root@127.0.0.1:1/db?passwd={}",
    "mysql://root@127.0.0.1:1/db?p%61ssword={}",
    "postgresql://u:{}/x@127.0.0.1:1/db",
    "postgresql://u:{}%zz@127.0.0.1:1/db",
    "postgres://u:{}#x@127.0.0.1:1/db",
    "postgresql://u:p@{}@127.0.0.1:1/db",
    "postgresql://u:x:{}@127.0.0.1:1/db",
    "postgresql://postgres@127.0.0.1:1/db?password={0}&sslpassword={0}",
    "postgresql://u:{}@h:99999999/db",
    "postgresql://u:{}@[::1/db",
    "nosuch://u:{}@h/db",
    "postgresql//u:{}@h/db",
    "u:{}@h/db",
    "postgresql://u:{}@127.0.0.1:1/db?nosuchoption=1",
    "postgresql:///db?host=127.0.0.1&port=1&password={}",
    "postgresql://u:{0}@127.0.0.1:1/a?passfile={0}",
    "postgresql://u:p@h,h2/db?PASSWORD={}",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_url_is_shown_without_its_secret(form: str) -> None:
    url = form.format(SECRET)
    assert SECRET not in without_secrets(url)
    assert SECRET not in hidden(f"the driver says: {SECRET}; {url}", url)
    try:
        app = Penstock(url, connect_timeout=0.5)
    except PenstockError as error:
        assert SECRET not in str(error)
    else:
        told = (app, app.settings, app.database.url, app.database.settings, vars(app.database))
        assert SECRET not in f"{told!r} {app.settings.shown_url}"
        app.close()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_driver_is_not_given_the_end_of_a_password_as_a_host(scheme: str) -> None:
    """It would tell it in its error, and a traceback shows that as it is."""
    for login in ("u:p@x", "u:p@x,y", "u:a@b@c", "u:p@x:1"):
        with pytest.raises(PenstockError, match="@ is written as %40") as refused:
            Penstock(f"{scheme}://{login}@localhost/db")
        assert f"{scheme}://u:***@localhost/db" in str(refused.value)
    Penstock(f"{scheme}://u:p%40x@localhost/db").close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user@host:5432/db",
        "postgresql://a:1,b:2/shop?target_session_attrs=read-write",
        "sqlite:////var/lib/queue.db",
        "mysql://root@host/db?charset=utf8mb4",
        "sqlite:///file:x?mode=memory",
    ],
)
def test_what_is_no_secret_is_shown(url: str) -> None:
    assert without_secrets(url) == url


@given(
    st.sampled_from(["postgresql", "mysql", "postgres", "x"]),
    st.text(st.characters(exclude_characters=":@?&;="), max_size=8),
    st.text(max_size=12),
    st.text(max_size=12),
)
def test_whatever_is_around_it(scheme: str, user: str, before: str, after: str) -> None:
    for url in (
        f"{scheme}://{user}:{before}{SECRET}{after}@host/db",
        f"{scheme}://host/db?password={SECRET}",
    ):
        assert SECRET not in without_secrets(url)


def test_a_short_word_does_not_hide_others() -> None:
    settings = Settings.load(database_url="postgresql://postgres:postgres@host/db")
    assert settings.hidden("postgresql at postgresqlhost") == "postgresql at postgresqlhost"
    assert settings.hidden('password "postgres" refused') == 'password "***" refused'
