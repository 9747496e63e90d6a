"""Three nodes of Galera, all written to, each by a host of its own; under load they are killed, frozen and restarted.

As behind a balancer, a host whose node is gone is sent to another one a moment later, and back when its node takes part
again. Two nodes frozen at once leave the third without a majority: it refuses everything until they are back.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from sqlalchemy import make_url

from tests.chaos.campaign import Verdict, judge, settle
from tests.chaos.failover import work
from tests.chaos.proxy import Network, Proxy
from tests.chaos.strike import DATABASE, Strike
from tests.chaos.terms import Terms
from tests.chaos.world import World, bare_world
from tests.memory import in_memory
from tests.servers.galera import Galera, Node
from tests.waiting import eventually

ROUND = 15.0
"""Seconds of load before each fault, and after the last."""
NOTICED = 1.5
"""Seconds until the balancer sends clients of a dead node elsewhere."""
AWAY = 8.0
"""Seconds for which nodes are frozen: longer than the others wait for them."""


def galera(
    asked: Terms, say: Callable[[str], None], every: float = ROUND, faults: int | None = None
) -> Verdict:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-chaos-", dir=in_memory())))
        folder.chmod(0o711)
        cluster = Galera(folder)
        stack.callback(cluster.stop)
        cluster.start()
        url = cluster.create_database("chaos")[0]
        made = bare_world(replace(asked, database="mariadb"), folder, url, None, stack)
        scene = Scene(made, cluster, _balanced(made, cluster, url, stack))
        made.start()
        say(f"{len(made.hosts)} hosts on {len(cluster.nodes)} nodes are up; seed {asked.seed}")
        began, chance = time.monotonic(), Random(asked.seed)
        deck = scene.deck(chance)
        for number in range(faults or max(1, round(asked.minutes * 60 / (every + AWAY)))):
            work(every)
            fault, node = deck[number % len(deck)], chance.choice(cluster.nodes)
            say(f"{time.monotonic() - began:6.1f} s  {fault.__name__} at {node.folder.name}")
            scene.strike(fault, node)
        work(every)
        seconds = time.monotonic() - began
        settle(made, say, lambda: None)
        return judge(made, say, seconds)


def _balanced(made: World, cluster: Galera, url: str, stack: ExitStack) -> dict[Proxy, Node]:
    """A way to the database for each host, and the node that it leads to."""
    network = Network()
    stack.callback(network.close)
    homes: dict[Proxy, Node] = {}
    for index, host in enumerate(made.everybody):
        node = cluster.nodes[index % len(cluster.nodes)]
        proxy = Proxy(network, node.port)
        stack.callback(proxy.close)
        there = make_url(url).set(host=proxy.at, port=proxy.port).render_as_string(hide_password=False)
        host.environment = {**host.environment, "PENSTOCK_DATABASE_URL": there}
        homes[proxy] = node
    return homes


@dataclass(slots=True)
class Scene:
    made: World
    cluster: Galera
    homes: dict[Proxy, Node]

    def deck(self, chance: Random) -> list[Callable[[Node], None]]:
        faults: list[Callable[[Node], None]] = [
            self.kill_node,
            self.freeze_node,
            self.restart_node,
            self.lose_majority,
        ]
        chance.shuffle(faults)
        return faults

    def strike(self, fault: Callable[[Node], None], node: Node) -> None:
        struck = Strike(fault.__name__, DATABASE, time.monotonic(), alone=True)
        struck.at, struck.held = self.made.holding(self.made.pids())
        self.made.strikes.append(struck)
        fault(node)
        struck.ended = time.monotonic()

    def kill_node(self, node: Node) -> None:
        node.kill()
        self._leave(node)
        node.rejoin()
        self._return(node)

    def restart_node(self, node: Node) -> None:
        node.stop()
        self._leave(node)
        node.position = ""
        node.join()
        self._return(node)

    def freeze_node(self, node: Node) -> None:
        node.freeze()
        self._leave(node)
        work(AWAY)
        node.thaw()
        self._return(node)

    def lose_majority(self, node: Node) -> None:
        others = [other for other in self.cluster.nodes if other is not node]
        for other in others:
            other.freeze()
        work(AWAY)
        for other in others:
            other.thaw()
        self._return(*self.cluster.nodes)

    def _leave(self, node: Node) -> None:
        """Clients of this node are sent to another."""
        work(NOTICED)
        other = next(each for each in self.cluster.nodes if each is not node)
        for proxy, home in self.homes.items():
            if home is node:
                _lead(proxy, other)

    def _return(self, *nodes: Node) -> None:
        """They take part again, and so do all others: then their clients come back to them."""
        eventually(lambda: all(each.takes_part() for each in self.cluster.nodes), 90)
        for proxy, home in self.homes.items():
            if home in nodes and proxy.upstream != home.port:
                _lead(proxy, home)


def _lead(proxy: Proxy, node: Node) -> None:
    proxy.upstream = node.port
    proxy.cut()
    proxy.mend()
