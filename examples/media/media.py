"""Media: a DAG with failure strategies and callbacks.

A video is probed, then transcoded to three sizes, given a thumbnail and subtitles at the same time. The subtitles are
optional: a video without them is still published. A thumbnail that fails is replaced by nothing (`ignore`), which is
seen afterwards. A size that cannot be made halts the run, and somebody is told.

    python media.py
"""

from __future__ import annotations

import asyncio
from typing import TypedDict

from penstock import Penstock, Retry

app = Penstock()
told: list[str] = []


class Probe(TypedDict):
    path: str
    seconds: int
    has_speech: bool


@app.task
def probe(path: str) -> Probe:
    return {"path": path, "seconds": 90, "has_speech": "silent" not in path}


@app.task(retries=Retry(max=1, delay=0.1), executor="thread")
def transcode(video: Probe, height: int) -> str:
    if "corrupt" in video["path"]:
        raise ValueError(f"{video['path']} cannot be read")
    return f"{video['path']}@{height}p"


@app.task(retries=0)
def thumbnail(video: Probe) -> str:
    if "dark" in video["path"]:
        raise ValueError("every frame is black")
    return f"{video['path']}.jpg"


@app.task(retries=0)
def subtitles(video: Probe) -> str:
    if not video["has_speech"]:
        raise ValueError("nobody speaks")
    return f"{video['path']}.vtt"


@app.task
def publish(sizes: list[str], picture: str | None, texts: str | None) -> str:
    extras = [extra for extra in (picture, texts) if extra]
    return f"published {len(sizes)} sizes and {len(extras)} extras"


@app.task
def page_somebody(run_id: str, reasons: list[str]) -> None:
    told.append(f"run {run_id} halted: {', '.join(reasons)}")


@app.task
def note_the_end(pipeline: str, status: str) -> None:
    told.append(f"{pipeline.rpartition('.')[2]} {status}")


@app.pipeline(on_halt=page_somebody, on_complete=note_the_end)
def ingest(path: str):
    video = probe(path)
    small = transcode.options(key="small")(video, 360)
    medium = transcode.options(key="medium")(video, 720)
    large = transcode.options(key="large", queue="default", timeout=600)(video, 1080)
    picture = thumbnail.options(on_failure="ignore")(video)
    texts = subtitles.options(optional=True)(video)
    return publish([small, medium, large], picture, texts)


async def main() -> None:
    runs = [
        await ingest.trigger_async(path) for path in ("talk.mov", "silent.mov", "dark.mov", "corrupt.mov")
    ]
    async with app.worker():
        while len(told) < len(runs) + 1:  # one callback for each end, one more for the halt
            await asyncio.sleep(0.02)
    for run in runs:
        status = await run.status_async()
        print(
            f"{status.value:<10}",
            await run.result_async() if status == "succeeded" else await run.reasons_async(),
        )
    print(len(told), "callbacks")


if __name__ == "__main__":
    asyncio.run(main())
    app.close()
