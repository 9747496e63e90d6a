"""What can be done to a host, its network, and the database. Each says how it ends, and after how long."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from tests.chaos import trouble
from tests.chaos.hosts import Host
from tests.chaos.terms import LEASE, REAP_AFTER
from tests.chaos.world import World

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class After:
    """What ends a fault, and when; it is asked again if it says False."""

    seconds: float
    heal: Callable[[], object]
    only: int | None = None
    """The one process that was struck, if it was not all of them."""


HostFault = Callable[[World, Host, Random], After]
DatabaseFault = Callable[[World, Random], After]


def nothing() -> None:
    """It heals by itself."""


# Processes


def kill_child(world: World, host: Host, chance: Random) -> After:
    """Its supervisor has to notice and replace it."""
    pid = chance.choice(host.children() or [0])
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
    return After(1.0, nothing, pid)


def kill_supervisor(world: World, host: Host, chance: Random) -> After:
    """Its children stop by themselves; a new supervisor is started, as systemd would."""
    host.send(SIGKILL)
    return After(chance.uniform(0.5, 2), host.start)


def kill_host(world: World, host: Host, chance: Random) -> After:
    """A power cut: others have to notice the silence."""
    host.lose_power()
    return After(chance.uniform(0.5, 2 * REAP_AFTER), host.start)


def kill_service(world: World, host: Host, chance: Random) -> After:
    """The same, and the machine stays up: the next process that starts sees at once that they are dead."""
    host.kill()
    return After(chance.uniform(0.5, 2), host.start)


def stop_host(world: World, host: Host, chance: Random) -> After:
    """A deploy: SIGTERM, then the next version."""
    host.send(SIGTERM)
    return After(trouble.STOP_SECONDS, trouble.starter(world, host))


def freeze_child(world: World, host: Host, chance: Random) -> After:
    """For longer than its supervisor has patience with."""
    children = host.children()
    if not children:
        return After(0, nothing)
    pid = chance.choice(children)
    os.kill(pid, SIGSTOP)
    return After(1.5 * REAP_AFTER, lambda: trouble.thaw(pid), pid)


def freeze_host(world: World, host: Host, chance: Random) -> After:
    """A suspended machine: past the point where others take its work; then it wakes up and goes on."""
    host.send_all(SIGSTOP)
    return After(chance.uniform(1.3, 2) * REAP_AFTER, lambda: host.send_all(SIGCONT))


def pause_host(world: World, host: Host, chance: Random) -> After:
    """A short stall, which must cost nothing."""
    host.send_all(SIGSTOP)
    return After(0.3 * REAP_AFTER, lambda: host.send_all(SIGCONT))


def skew_clock(world: World, host: Host, chance: Random) -> After:
    """An hour, one way or the other, from one moment to the next."""
    host.skew(chance.choice([-HOUR, HOUR]))
    return After(chance.uniform(2, 6), lambda: host.skew(0))


# Network


def block_briefly(world: World, host: Host, chance: Random) -> After:
    """Shorter than the lease: what was sent arrives late."""
    host.block()
    return After(0.3 * min(LEASE, REAP_AFTER), lambda: host.unblock(reset=False))


def block_long(world: World, host: Host, chance: Random) -> After:
    """Longer than lease and patience: what was sent arrives much too late, or the connections are gone."""
    reset = chance.random() < 0.5
    host.block()
    return After(chance.uniform(1.5, 2.5) * REAP_AFTER, lambda: host.unblock(reset=reset))


def cut_network(world: World, host: Host, chance: Random) -> After:
    """Connections end at once, and no new one gets through."""
    assert host.proxy is not None
    proxy = host.proxy
    proxy.cut()
    return After(chance.uniform(0.2, 2) * REAP_AFTER, proxy.mend)


def strand_connections(world: World, host: Host, chance: Random) -> After:
    """Some of its connections are dead without a word; what was sent on them arrives when no client waits any more."""
    assert host.proxy is not None
    proxy = host.proxy
    proxy.strand(lambda: chance.random() < 0.5)
    return After(chance.uniform(2.2, 3.2) * REAP_AFTER, proxy.wash_up)


# Database


def kill_connections(world: World, chance: Random) -> After:
    assert world.server is not None
    world.server.kill_connections()
    return After(0, nothing)


def restart_server(world: World, chance: Random) -> After:
    """As after a crash, without a word to its clients; away for a moment, or for longer than the patience."""
    assert world.server is not None
    world.app.database.close()
    world.server.stop(immediate=True)
    return After(chance.choice([0, 0, 1.3 * REAP_AFTER]), world.server.start)


def fill_table(world: World, chance: Random) -> After:
    """Many finished jobs, as after weeks."""
    trouble.fill(world)
    return After(0, nothing)


def hold_snapshot(world: World, chance: Random) -> After:
    """A transaction of a report is left open: dead rows pile up."""
    return After(chance.uniform(6, 12), trouble.snapshot(world))


def hold_file(world: World, chance: Random) -> After:
    """Another program writes to the SQLite file, for longer than any worker waits for a lock."""
    return After(chance.uniform(0.3, 1.3) * REAP_AFTER, trouble.write_lock(world))


SERVERS_ONLY = ("sqlite",)
FILES_ONLY = ("postgres", "mariadb")

HOST_FAULTS: dict[HostFault, tuple[int, tuple[str, ...]]] = {
    kill_child: (3, ()),
    kill_supervisor: (2, ()),
    kill_host: (2, ()),
    kill_service: (2, ()),
    stop_host: (2, ()),
    freeze_child: (1, ()),
    freeze_host: (2, ()),
    pause_host: (1, ()),
    skew_clock: (1, ()),
    block_briefly: (2, SERVERS_ONLY),
    block_long: (2, SERVERS_ONLY),
    cut_network: (2, SERVERS_ONLY),
    strand_connections: (2, SERVERS_ONLY),
}
"""How often in a round, and where it does not apply."""
DATABASE_FAULTS: dict[DatabaseFault, tuple[int, tuple[str, ...]]] = {
    kill_connections: (2, SERVERS_ONLY),
    restart_server: (2, SERVERS_ONLY),
    fill_table: (1, ()),
    hold_snapshot: (1, ()),
    hold_file: (2, FILES_ONLY),
}
PRODUCER_FAULTS: dict[HostFault, tuple[int, tuple[str, ...]]] = {
    kill_host: (1, ()),
    block_briefly: (1, SERVERS_ONLY),
    cut_network: (1, SERVERS_ONLY),
}
SPEND_NOTHING = ("stop_host", "pause_host", "skew_clock", "block_briefly", "kill_connections", "restart_server",
                 "fill_table", "hold_snapshot", "failover")  # fmt: skip
"""A process that runs a job while this happens, and nothing else, has not crashed."""
