"""A cloud provider that is slow, and fails now and then. Asking twice under one name gives the same thing."""

from __future__ import annotations

import asyncio
import random


class OutOfCapacity(Exception):
    """Try again later."""


class Provider:
    """Machines and disks, by the name they were asked for under."""

    def __init__(self, seed: int = 0, failures: float = 0.2, latency: float = 0.01) -> None:
        self.chance = random.Random(seed)
        self.failures = failures
        self.latency = latency
        self.machines: dict[str, str] = {}
        self.disks: dict[str, str] = {}

    async def create_machine(self, name: str) -> str:
        await self._work()
        return self.machines.setdefault(name, f"machine-{len(self.machines) + 1}")

    async def delete_machine(self, name: str) -> None:
        await self._work()
        self.machines.pop(name, None)

    async def create_disk(self, name: str, machine: str) -> str:
        await self._work()
        return self.disks.setdefault(name, f"disk-{len(self.disks) + 1}@{machine}")

    async def _work(self) -> None:
        await asyncio.sleep(self.latency)
        if self.chance.random() < self.failures:
            raise OutOfCapacity("no capacity at the moment")
