"""A server limited to 50 a second, in a process of its own: ``python -m bench.limited_server``; prints its port."""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus

from headgate import Limiter

LIMIT = 50


async def main() -> None:
    """Serve until standard input ends."""
    async with Limiter.open("memory://") as limiter:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    verdict = await limiter.hit("all", f"{LIMIT}/second")
                    status = HTTPStatus.OK if verdict.allowed else HTTPStatus.TOO_MANY_REQUESTS
                    lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Length: 0"]
                    lines += [f"{name}: {value}" for name, value in verdict.headers().items()]
                    writer.write("\r\n".join([*lines, "", ""]).encode())
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
