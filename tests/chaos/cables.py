"""Hosts in network namespaces of their own, each at the end of a cable that can be pulled out.

What the kernel then does is what it does when a switch is gone: no side gets an error, packets are lost, TCP sends them
again for as long as it sees fit. It needs `ip` and the right to make namespaces; elsewhere the proxy holds everything
back.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cable:
    """From a namespace to this one."""

    number: int

    @property
    def place(self) -> str:
        """The namespace; and our end of the cable, whose name may have fifteen letters."""
        return f"pk{os.getpid()}-{self.number}"

    @property
    def near(self) -> str:
        return self._address(1)

    @property
    def far(self) -> str:
        return self._address(2)

    def _address(self, end: int) -> str:
        """Runs beside each other have networks of their own."""
        run = os.getpid()
        return f"10.{200 + run % 50}.{run // 50 % 256}.{self.number * 4 + end}"

    @property
    def inside(self) -> list[str]:
        """What a command begins with that is to run at the far end."""
        return ["ip", "netns", "exec", self.place]

    def lay(self) -> None:
        _ip("netns", "add", self.place)
        _ip("link", "add", self.place, "type", "veth", "peer", "name", "eth0", "netns", self.place)
        _ip("address", "add", f"{self.near}/30", "dev", self.place)
        _ip("link", "set", self.place, "up")
        _ip("-n", self.place, "address", "add", f"{self.far}/30", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", self.place, "link", "set", device, "up")

    def pull(self) -> None:
        _ip("link", "set", self.place, "down")

    def plug(self) -> None:
        _ip("link", "set", self.place, "up")

    def take_away(self) -> None:
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", self.place)


@contextmanager
def laid(count: int) -> Iterator[list[Cable]]:
    """So many cables; none where the machine does not allow it."""
    with ExitStack() as stack:
        cables = [Cable(number) for number in range(count)] if shutil.which("ip") else []
        try:
            for cable in cables:
                stack.callback(cable.take_away)
                cable.lay()
        except (OSError, subprocess.CalledProcessError):
            stack.close()
            cables = []
        yield cables


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
