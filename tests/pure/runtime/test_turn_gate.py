"""runtime/pump/turn_gate: as many processes as there are places, and no place is lost with its process."""

import os
import signal
import threading
from pathlib import Path

import pytest

from penstock.runtime import worker
from penstock.runtime.liveness import host_identity
from penstock.runtime.pump import turn_gate
from penstock.runtime.pump.turn_gate import TurnGate
from tests.waiting import eventually


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TurnGate:
    monkeypatch.setattr(turn_gate, "processors", lambda: 2)
    return TurnGate.at(tmp_path / "turns")


def _child_with_a_place(gate: TurnGate) -> int:
    """A forked process that takes a place and holds it until it is killed."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tells, b"%d" % (-1 if (place := gate.enter(0)) is None else place))
            threading.Event().wait(60)
        finally:
            os._exit(1)
    os.close(tells)
    assert os.read(told, 10) in (b"0", b"1")
    os.close(told)
    return pid


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_process_gets_a_place_only_while_one_is_free(gate: TurnGate) -> None:
    children = [_child_with_a_place(gate) for _ in range(2)]
    try:
        assert gate.enter(0.01) is None
        _kill(children.pop())
        assert eventually(lambda: gate.enter(0) is not None)
    finally:
        for pid in children:
            _kill(pid)


def test_a_place_that_was_left_is_free_for_others(gate: TurnGate) -> None:
    child = _child_with_a_place(gate)
    try:
        place = gate.enter(0)
        assert place is not None
        gate.leave(place)
        other = _child_with_a_place(gate)
        assert gate.enter(0) is None
        _kill(other)
    finally:
        _kill(child)


def test_a_frozen_process_keeps_its_place_and_holds_up_no_other(gate: TurnGate) -> None:
    children = [_child_with_a_place(gate) for _ in range(2)]
    try:
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        assert gate.enter(0.05) is None, "after its time the turn begins without a place"
    finally:
        for pid in children:
            _kill(pid)


def test_the_workers_of_a_user_on_a_machine_have_one_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_identity, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(turn_gate, "processors", lambda: 1)
    gate = worker._turn_gate()
    assert gate is not None
    child = _child_with_a_place(gate)
    try:
        again = worker._turn_gate()
        assert again is not None
        assert again.enter(0) is None
    finally:
        _kill(child)
    (file,) = tmp_path.glob("*-turns")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_of_another_user_is_no_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "turns").touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError):
        TurnGate.at(tmp_path / "turns")


def test_without_shared_memory_there_is_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_identity, "SHARED_MEMORY", None)
    assert worker._turn_gate() is None


def test_a_handler_that_closes_the_file_ends_no_turn(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "turns", os.O_CREAT | os.O_RDWR)
    gate = TurnGate(handle, 1)
    assert gate.enter(0) == 0
    os.close(handle)
    gate.leave(0)
    assert gate.enter(0) is None
