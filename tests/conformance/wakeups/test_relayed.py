"""runtime/supervisor/wakeup_relay, database/listeners: what a child hears of the relay, and what is lost."""

import os
from collections.abc import Iterator

import pytest

from penstock.database.listeners import CONNECTED, ECHO, LOST, MOST_READ, SUBJECT, RelayedListener
from penstock.runtime.pump.idle import IdleMode
from penstock.runtime.supervisor.wakeup_relay import Outlet


@pytest.fixture
def outlet() -> Outlet:
    return Outlet("own")


@pytest.fixture
def wake() -> Iterator[int]:
    read, write = os.pipe()
    yield read
    os.close(read)
    os.close(write)


@pytest.fixture
def listener(outlet: Outlet) -> Iterator[RelayedListener]:
    pipe, outlet.pipe = os.pipe()
    os.set_blocking(outlet.pipe, False)
    found = RelayedListener(pipe, "own")
    yield found
    found.close()
    outlet.close()


def test_a_child_counts_on_it_once_it_was_told_of_a_connection(
    outlet: Outlet, listener: RelayedListener, wake: int
) -> None:
    rest = IdleMode(listener)
    assert not listener.connected
    assert not rest.is_unproven
    outlet.tell(CONNECTED)
    assert listener.wait(wake, 1) == []
    assert listener.connected
    assert rest.is_unproven
    proof = rest.prove()
    assert not rest.is_unproven
    assert not rest.is_told
    outlet.tell(ECHO, proof)
    outlet.tell(SUBJECT, "ready\tdefault\t0")
    assert listener.wait(wake, 1) == ["ready\tdefault\t0"]
    assert listener.echoed == proof
    assert rest.is_told


def test_after_a_loss_nothing_counts_that_was_heard_before(
    outlet: Outlet, listener: RelayedListener, wake: int
) -> None:
    rest = IdleMode(listener)
    for message in ((CONNECTED,), (ECHO, "proof"), (LOST,)):
        outlet.tell(*message)
    assert listener.wait(wake, 1) == ["reconnect"]
    assert not listener.connected
    assert listener.echoed is None
    assert not rest.is_told
    outlet.tell(CONNECTED)
    assert listener.wait(wake, 1) == []
    assert rest.is_unproven


def test_another_connection_without_a_word_of_the_loss_is_one(
    outlet: Outlet, listener: RelayedListener, wake: int
) -> None:
    for message in ((CONNECTED,), (ECHO, "proof"), (CONNECTED,)):
        outlet.tell(*message)
    assert listener.wait(wake, 1) == ["reconnect"]
    assert listener.connected
    assert listener.echoed is None


def test_messages_are_whole_however_they_are_read(
    outlet: Outlet, listener: RelayedListener, wake: int
) -> None:
    sent: list[str] = []
    while outlet.tell(SUBJECT, f"{len(sent)} {'é' * (len(sent) % 500)}"):
        sent.append(f"{len(sent)} {'é' * (len(sent) % 500)}")
    heard: list[str] = []
    while len(heard) < len(sent):
        heard += listener.wait(wake, 1)
    assert heard == sent
    assert sum(map(len, sent)) > MOST_READ // 3


def test_a_closed_pipe_is_noticed_once_and_then_nothing_is_heard(
    outlet: Outlet, listener: RelayedListener, wake: int
) -> None:
    outlet.tell(CONNECTED)
    outlet.tell(SUBJECT, "last")
    outlet.close()
    assert listener.wait(wake, 1) == ["last"]
    assert listener.wait(wake, 1) == ["reconnect"]
    assert not listener.connected
    assert listener.wait(wake, 0.01) == []


def test_nothing_is_said_to_a_child_that_is_gone(outlet: Outlet, listener: RelayedListener) -> None:
    listener.close()
    assert not outlet.tell(SUBJECT, "x")
    assert outlet.pipe is None
