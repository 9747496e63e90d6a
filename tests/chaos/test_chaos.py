"""The harness at work: a short campaign and one failover, with every promise kept. `make chaos` is the long one."""

import pytest

from tests.chaos.campaign import Verdict, campaign
from tests.chaos.failover import failover
from tests.chaos.galera import galera
from tests.chaos.patroni import patroni
from tests.chaos.terms import Terms
from tests.servers.errors import Unavailable

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

SECONDS = 12.0
STARVED = "counted as a crash"


def test_a_short_campaign_keeps_all_promises(database_kind: str, database_url: str) -> None:
    """`database_url` is there to skip where there is no such server; the campaign starts its own."""
    if database_kind == "mariadb":
        pytest.skip("two kinds will do here: make chaos DATABASE=mariadb")
    asked = Terms(database=database_kind, minutes=SECONDS / 60, hosts=2, network="proxy")
    verdict = campaign(asked, print, gap=(0.5, 2.0), calm=0)
    assert len(verdict.facts.strikes) > 3
    passed(verdict)


def test_nothing_is_lost_in_a_failover(postgres_url: str) -> None:
    asked = Terms(minutes=0.3, hosts=2)
    verdict = failover(asked, print, every=8)
    assert [strike.kind for strike in verdict.facts.strikes] == ["failover"]
    passed(verdict)


def test_patroni_promotes_another_server(postgres_url: str) -> None:
    try:
        verdict = patroni(Terms(hosts=2, seed=1), print, every=4, faults=1)
    except Unavailable as missing:
        pytest.skip(f"no Patroni here: {missing}")
    assert [strike.kind for strike in verdict.facts.strikes] == ["kill_server"]
    passed(verdict)


def test_nodes_of_a_galera_cluster_come_and_go(mariadb_url: str) -> None:
    """`mariadb_url` is there to skip where there is no such server."""
    try:
        verdict = galera(Terms(hosts=2, seed=1), print, every=4, faults=1)
    except Unavailable as missing:
        pytest.skip(f"no Galera here: {missing}")
    assert len(verdict.facts.strikes) == 1
    passed(verdict)


def passed(verdict: Verdict) -> None:
    print(verdict.report)  # noqa: T201 - shown when it fails
    assert len(verdict.facts.told("accepted")) > 20
    # Beside other tests a live process may well be kept from a processor for longer than `reap_after`.
    assert [wrong for wrong in verdict.wrong if STARVED not in wrong] == []
