"""Clients that look at a job, as its page does: the live stream, and a request every two seconds.

Told ``on`` and ``off`` on standard input. Plain sockets, so that they take little themselves.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final
from urllib.parse import urlsplit

PAUSE: Final = 2.0


async def watch(host: str, port: int, job: str) -> None:
    """Be one client, until cancelled."""
    stream = asyncio.create_task(read(host, port, f"/jobs/{job}/live"))
    try:
        while True:
            await read(host, port, f"/jobs/{job}/checkpoints")
            await asyncio.sleep(PAUSE)
    finally:
        stream.cancel()


async def read(host: str, port: int, path: str) -> None:
    """Read an answer to its end."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n"
        writer.write(request.encode())
        while await reader.read(65536):
            pass
    finally:
        writer.close()


async def main() -> None:
    """Come and go as told."""
    address, count, job = urlsplit(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    assert address.hostname is not None
    assert address.port is not None
    loop = asyncio.get_running_loop()
    clients: list[asyncio.Task[None]] = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        wanted = count if line.strip() == "on" else 0
        clients = [
            asyncio.create_task(watch(address.hostname, address.port, job)) for _ in range(wanted)
        ]


if __name__ == "__main__":
    asyncio.run(main())
