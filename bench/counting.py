"""Statements counted on the wire: a TCP relay before the server that reads what clients send.

It counts simple queries and executions of prepared statements, whatever the driver; what is counted is not timed in the
same run. With a delay it stands for the way to a server that is elsewhere.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STARTUP = 196608
STATEMENTS = b"QE"


class Relay:
    """Listens on a port of its own and passes everything on."""

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self.target = port
        self.delay = delay
        """Seconds that everything takes on its way, in each direction."""
        self.statements = 0
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """From the client to the server, reading the frames on the way."""
        buffer, started = b"", False
        with suppress(OSError):
            while data := client.recv(65536):
                self._send(server, data)
                buffer += data
                buffer, started = self._read(buffer, started)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _read(self, buffer: bytes, started: bool) -> tuple[bytes, bool]:
        found = 0
        while len(buffer) >= 8 if not started else len(buffer) >= 5:
            if not started:
                size = int.from_bytes(buffer[:4], "big")
                if len(buffer) < size:
                    break
                started = int.from_bytes(buffer[4:8], "big") == STARTUP
                buffer = buffer[size:]
                continue
            size = 1 + int.from_bytes(buffer[1:5], "big")
            if len(buffer) < size:
                break
            found += buffer[0] in STATEMENTS
            buffer = buffer[size:]
        if found:
            with self._lock:
                self.statements += found
        return buffer, started

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                self._send(client, data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _send(self, target: socket.socket, data: bytes) -> None:
        if self.delay:
            time.sleep(self.delay)
        target.sendall(data)

    def close(self) -> None:
        self._server.close()


@contextmanager
def relay(port: int, delay: float = 0.0) -> Iterator[Relay]:
    found = Relay(port, delay)
    try:
        yield found
    finally:
        found.close()
