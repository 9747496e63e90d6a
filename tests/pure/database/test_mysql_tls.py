"""database/mysql_connection: one TLS context serves all connections whose URL says nothing of TLS."""

from typing import Any

import pytest

pytest.importorskip("pymysql", reason="PyMySQL is not installed")

from penstock.database.mysql_connection import ProbedConnection


def context(**options: Any) -> Any:
    return ProbedConnection(defer_connect=True, **options).ctx  # type: ignore[attr-defined]  # no stub


def test_connections_without_options_share_a_context_that_checks_no_certificate() -> None:
    first = context()
    assert context(host="elsewhere") is first
    assert not first.check_hostname
    assert first.verify_mode.name == "CERT_NONE"


def test_options_make_a_context_of_their_own() -> None:
    checked = context(ssl_verify_cert=True, ssl_verify_identity=True)
    assert checked is not context()
    assert context(ssl_verify_cert=True) is not context(ssl_verify_cert=True)
