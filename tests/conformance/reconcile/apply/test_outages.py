"""database/user/statements: a connection lost under a statement on a user's table is an outage, not a row's error."""

from collections.abc import Callable

import pytest
from sqlalchemy import literal, select

from penstock import Penstock
from penstock.database.user.statements import Statements

CUT = {"postgresql": "SELECT pg_terminate_backend({id})", "mysql": "KILL {id}"}
WHO = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}


@pytest.fixture
def other(make_app: Callable[..., Penstock]) -> Penstock:
    return make_app()


def test_a_lost_connection_is_told_as_the_driver_tells_it(
    app: Penstock, other: Penstock, database_kind: str
) -> None:
    if database_kind == "sqlite":
        pytest.skip("a file cannot cut a process off")
    name = app.database.dialect.name
    with pytest.raises(Exception) as lost, app.database.transaction() as tx:  # noqa: PT012 - until it is noticed
        id = tx.rows(WHO[name])[0][0]
        with other.database.transaction() as another:
            another.rows(CUT[name].format(id=id))
        for _ in range(10):
            Statements(app.database, tx).rows(select(literal(1)))
    assert app.database.dialect.is_disconnect(lost.value), repr(lost.value)
    assert app.database.in_transaction(lambda tx: tx.rows("SELECT 1")) == [(1,)]
