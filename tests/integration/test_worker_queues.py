"""The examples for worker queues, each with real workers and its real broker, on one Valkey."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from tests.support.optional_servers import find_server
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_SENT: Final = re.compile(r"(mail|sms) (\d+) at (\d+\.\d+) by (\d+)")


class Queue(NamedTuple):
    """How to start two processes that work, and the lines by which they say that they do."""

    words: tuple[str, ...]
    ready: str
    lines: int = 1
    commands: int = 1


QUEUES: Final = {
    "celery": Queue(("--app", "celery_tasks", "worker", "--concurrency", "2", "--loglevel", "INFO"), " ready."),
    "dramatiq": Queue(("dramatiq_tasks", "--processes", "2", "--threads", "2"), "ready for action", 2),
    "arq": Queue(("arq_tasks.WorkerSettings",), "redis_version", 2, 2),
}
JOBS: Final = {"mail": 45, "sms": 4}


class Sent(NamedTuple):
    """What a worker has done."""

    job: int
    at: float
    process: int


@pytest.fixture(scope="module")
def broker(servers_folder: Path) -> Iterator[Server]:
    """A server on a port, as all of the queues can use one."""
    server = Server(servers_folder / "broker", free_port())
    yield server
    server.kill()


@contextmanager
def _workers(program: Path, queue: Queue, environment: dict[str, str], log: Path) -> Iterator[None]:
    """Two processes that work."""
    with ExitStack() as stack, log.open("wb") as out:
        started = []
        for _ in range(queue.commands):
            process = stack.enter_context(
                subprocess.Popen(  # noqa: S603 (ours)
                    [program, *queue.words], cwd=_EXAMPLES, env=environment, stdout=out, stderr=subprocess.STDOUT
                )
            )
            stack.callback(process.kill)  # does nothing if it has ended
            started.append(process)
        wait_until(lambda: log.read_text(encoding="utf-8").count(queue.ready) >= queue.lines, f"{program} works")
        yield
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=30)


def _sent(log: Path, provider: str) -> list[Sent]:
    found = [line[1:] for line in _SENT.findall(log.read_text(encoding="utf-8")) if line[0] == provider]
    return sorted((Sent(int(job), float(at), int(process)) for job, at, process in found), key=lambda sent: sent.at)


@pytest.mark.parametrize("name", ["celery", "dramatiq", pytest.param("arq", marks=pytest.mark.needs("arq"))])
def test_workers_keep_the_rates_together(name: str, broker: Server, tmp_path: Path) -> None:
    """Two processes do every job once, never above the limits' rates; waits of over a second are spent in the queue."""
    broker.ask("FLUSHALL")
    program = find_server(name)
    assert program is not None
    environment = {**os.environ, "REDIS_URL": broker.url, "PYTHONUNBUFFERED": "1"}
    environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    log = tmp_path / "log"
    with _workers(program, QUEUES[name], environment, log):
        for provider, jobs in JOBS.items():
            command = [str(program.parent / "python"), f"{name}_tasks.py", provider, str(jobs)]
            subprocess.run(command, cwd=_EXAMPLES, env=environment, check=True)  # noqa: S603 (ours)
        for provider, jobs in JOBS.items():
            wait_until(lambda: len(_sent(log, provider)) >= jobs, f"{jobs} jobs are done")  # noqa: B023 (called at once)
    mail, sms = (_sent(log, provider) for provider in JOBS)
    for sent, jobs in zip((mail, sms), JOBS.values(), strict=True):
        assert sorted(each.job for each in sent) == list(range(jobs))
    assert len({each.process for each in mail}) == 2
    _never_above(mail, 20, 5)
    _never_above(sms, 2 / 3, 2)


def _never_above(sent: list[Sent], rate: float, burst: int) -> None:
    """Each job came no earlier than the limit allows it; a tenth of a second is for those that were held up before."""
    first = sent[0].at
    for count, each in enumerate(sent):
        assert each.at - first >= (count - burst) / rate - 0.1, (count, sent)
