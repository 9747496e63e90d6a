"""A cable that is pulled out is silent; plugged in again, what was sent arrives late."""

import select
import socket
import subprocess
import sys

import pytest

from tests.chaos.cables import laid

pytestmark = pytest.mark.process

TALK = """
import socket, sys
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
for word in sys.stdin:
    line.sendall(word.encode())
    print("said", flush=True)
"""
MOMENT = 0.3


def test_nothing_comes_through_while_it_is_out() -> None:
    with laid(1) as cables:
        if not cables:
            pytest.skip("no network namespaces can be made here")
        (cable,) = cables
        with socket.create_server((cable.near, 0)) as server:
            command = [*cable.inside, sys.executable, "-c", TALK, cable.near, str(server.getsockname()[1])]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as host:
                assert host.stdin is not None
                assert host.stdout is not None
                line, there = server.accept()
                assert there[0] == cable.far
                cable.pull()
                host.stdin.write("late\n")
                host.stdin.flush()
                assert host.stdout.readline() == "said\n", "neither side gets an error"
                assert select.select([line], [], [], MOMENT)[0] == []
                cable.plug()
                line.settimeout(30)
                assert line.recv(10) == b"late\n"
                host.stdin.close()
                line.close()


def test_they_are_taken_away() -> None:
    with laid(2) as cables:
        names = [cable.place for cable in cables]
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout if names else ""
    assert not [name for name in names if name in listed]
