"""Send all texts to `/v1/embeddings`, one a request, from 32 connections, and say how many a second were answered.

python -m benchmarks.embeddings.client PORT MODEL COUNT
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator

from benchmarks.embeddings.texts import mixed_texts

CALLERS = 32


async def caller(port: int, bodies: Iterator[bytes]) -> None:
    """Send what is left, one after the other, over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].split(maxsplit=1)[0])
        content = await reader.readexactly(length)
        if b" 200 " not in answer[:15]:
            raise SystemExit(f"{answer.decode()}{content.decode()}")
    writer.close()


async def send(port: int, model: str, count: int) -> float:
    """Texts a second."""
    texts = mixed_texts(count)
    fields = {"model": model, "encoding_format": "base64"}
    bodies = iter([json.dumps({**fields, "input": text}).encode() for text in texts])
    began = time.monotonic()
    await asyncio.gather(*(caller(port, bodies) for _ in range(CALLERS)))
    return len(texts) / (time.monotonic() - began)


if __name__ == "__main__":
    print(asyncio.run(send(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
