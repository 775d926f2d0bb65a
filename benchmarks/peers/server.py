"""A server with CTranslate2, SentencePiece and uvicorn, as a user would write it.

The texts that wait become a batch as soon as one of the translator's threads is free.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import ctranslate2
import sentencepiece
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

LARGEST = 32  # texts of a batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "pieces"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.6)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(options.pieces))
    translator = ctranslate2.Translator(
        str(options.model),
        inter_threads=options.workers,
        intra_threads=1,
        compute_type=options.dtype,
    )
    waiting: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()

    def translated(texts: list[str]) -> list[str]:
        tokens = pieces.encode(texts, out_type=str)
        longest = max(map(len, tokens)) + 50
        results = translator.translate_batch(
            tokens,
            beam_size=options.beam,
            length_penalty=options.alpha,
            max_decoding_length=longest,
        )
        return [pieces.decode(result.hypotheses[0]) for result in results]

    async def translate_batches() -> None:
        while True:
            batch = [await waiting.get()]
            while len(batch) < LARGEST and not waiting.empty():
                batch.append(waiting.get_nowait())
            texts = await asyncio.to_thread(translated, [text for text, _ in batch])
            for (_, answer), text in zip(batch, texts, strict=True):
                answer.set_result(text)

    @contextlib.asynccontextmanager
    async def started(app: Starlette) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(translate_batches()) for _ in range(options.workers)]
            yield
            for task in tasks:
                task.cancel()

    async def translate(request: Request) -> JSONResponse:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting.put_nowait(((await request.json())["text"], answer))
        return JSONResponse({"translation": await answer})

    app = Starlette(routes=[Route("/translate", translate, methods=["POST"])], lifespan=started)
    uvicorn.run(app, port=options.port, access_log=False)


if __name__ == "__main__":
    main()
