"""As little HTTP as asking /embed needs: a client that takes its time would measure itself."""

from __future__ import annotations

import asyncio


class Connection:
    """One request at a time, over a connection that is kept, and opened anew when the server has closed it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._place = host, int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def embed(self, ids: bytes) -> int:
        """The status of the answer, which is read to its end. OSError or IncompleteReadError: there was none."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        kind = "application/octet-stream"
        writer.write(
            f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nAccept: {kind}\r\n"
            f"Content-Length: {len(ids)}\r\n\r\n".encode()
            + ids
        )
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        if "connection: close" in head:
            self.close()
        return int(head[9:12])

    def close(self) -> None:
        """Let go of it."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
