"""The network between one host and the database: a TCP proxy that can be blocked and cut.

Blocked is what a broken switch does: nothing comes through in either direction, no error is reported, and a new
connection waits. Afterwards either everything that was sent arrives late, as TCP would have it, or the connections are
gone. Stranded is a connection that nothing comes through, while others do: a client that gives it up and connects anew
goes on, and what was sent before arrives after that. Cut is what a firewall does that refuses: connections end at once
and new ones are not accepted.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK = 1 << 16
LOOPBACK = "127.0.0.1"


class Network:
    """The event loop that all proxies of a run share, in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="chaos-network", daemon=True)
        self.thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)


class Proxy:
    """Listens on a port of its own and passes everything on to the server's."""

    def __init__(self, network: Network, port: int, at: str = LOOPBACK) -> None:
        self.network = network
        self.at = at
        self.upstream = port
        self.port = 0
        self._open = asyncio.Event()
        self._lanes: set[asyncio.Event] = set()
        """Of each connection, whether anything comes through."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._open.set()
        network.call(self._listen())

    def block(self) -> None:
        self.network.loop.call_soon_threadsafe(self._open.clear)

    def unblock(self, *, reset: bool) -> None:
        """What was sent arrives; or all connections of the time before are gone."""
        self.network.call(self._unblock(reset))

    def strand(self, chosen: Callable[[], bool] = lambda: True) -> None:
        """Connections of now: what they have to say stays on its way, and so does their end."""
        self.network.call(self._strand(chosen))

    def wash_up(self) -> None:
        """It arrives."""
        self.network.call(self._wash_up())

    def cut(self) -> None:
        self.network.call(self._cut())

    def mend(self) -> None:
        self.network.call(self._listen())

    def close(self) -> None:
        self.network.call(self._cut())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self.at, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._abort()

    async def _unblock(self, reset: bool) -> None:
        if reset:
            self._abort()
        self._open.set()

    async def _strand(self, chosen: Callable[[], bool]) -> None:
        for lane in self._lanes:
            if chosen():
                lane.clear()

    async def _wash_up(self) -> None:
        for lane in self._lanes:
            lane.set()

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        with suppress(OSError, asyncio.CancelledError):
            await self._relay(reader, writer)
        self._tasks.discard(task)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        theirs, ours = await asyncio.open_connection(LOOPBACK, self.upstream)
        self._writers.add(ours)
        lane = asyncio.Event()
        lane.set()
        self._lanes.add(lane)
        there = asyncio.ensure_future(self._copy(reader, ours, lane))
        back = asyncio.ensure_future(self._copy(theirs, writer, lane))
        try:
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._lanes.discard(lane)
            self._writers.discard(ours)
            if there.done():
                ours.close()  # as TCP has it: the end comes after all that was sent, which is still read
            else:
                ours.transport.abort()
            for way in (there, back):
                way.cancel()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: asyncio.Event
    ) -> None:
        """Until either side ends. Also the end is held back while nothing comes through."""
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._passes(lane)
                writer.write(data)
                await writer.drain()
            await self._passes(lane)

    async def _passes(self, lane: asyncio.Event) -> None:
        await self._open.wait()
        await lane.wait()
