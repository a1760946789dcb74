# SPDX-License-Identifier: MIT OR Apache-2.0
"""Host processes that never outlive this program, and work done two things at a time.

Each child leads its own process group and asks the kernel to be killed when the
thread that started it ends (`setpriv --pdeathsig`), so that not even a SIGKILL
of this program leaves a simulated machine running.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, TypeVar

from shingle.failure import Failure

T = TypeVar("T")


class Ended(Failure):
    """A program ended by itself with a status that says that it failed; `text` is what it said."""

    def __init__(self, sentence: str, *, detail: Sequence[str], text: str) -> None:
        super().__init__(sentence, detail=detail)
        self.text = text


_live: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()
_stopping = threading.Event()
# Set by the handler of a signal, which may interrupt whoever holds a lock, and never cleared: the program ends.
_ending = False


def stopping() -> bool:
    return _ending or _stopping.is_set()


def end() -> None:
    """From now on nothing starts and every wait for a machine is over. Takes no lock: for a signal's handler."""
    global _ending  # noqa: PLW0603
    _ending = True


def children_cpu_s() -> float:
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def started(
    argv: Sequence[str | Path],
    *,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    foreground: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process whose whole group is gone when the block is left, however it is left.

    `foreground` keeps the terminal's process group, for an interactive machine.
    """
    with _lock:
        if stopping():
            raise Failure("stopped before it was done.", status=130)
        process = subprocess.Popen(
            _bound(argv, os.getpid()),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=None if env is None else dict(env),
            process_group=None if foreground else 0,
        )
        _live.add(process)
    try:
        yield process
    finally:
        _kill(process, group=not foreground)
        with _lock:
            _live.discard(process)


def _bound(argv: Sequence[str | Path], parent: int) -> list[str]:
    """The command, killed with the thread that starts it; it does not begin if `parent` died before that."""
    check = 'test $PPID = "$0" && exec "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", check, str(parent), *map(str, argv)]


def stop_all() -> None:
    """Ends every process that is running and refuses new ones: the program is about to end."""
    with _lock:
        _stopping.set()
        for process in _live:
            _kill(process, group=os.getpgid(0) != _group_of(process), reap=False)


def _group_of(process: subprocess.Popen[bytes]) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return -1


def _kill(process: subprocess.Popen[bytes], *, group: bool, reap: bool = True) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    if reap:
        process.wait()


def run(
    argv: Sequence[str | Path],
    *,
    what: str,
    limit_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    accept: Sequence[int] = (0,),
) -> str:
    """Runs a program to its end and returns its output; `what` names it in the error sentence."""
    command = shlex.join(map(str, argv))
    with contextlib.ExitStack() as stack:
        if log is None:
            sink: int | IO[bytes] = subprocess.PIPE
        else:
            sink = stack.enter_context(log.open("ab"))
            sink.write(f"$ {command}\n".encode())
            sink.flush()
        process = stack.enter_context(started(argv, stdout=sink, stderr=subprocess.STDOUT, cwd=cwd, env=env))
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{what} did not end within {limit_s:.0f} s.", detail=[f"$ {command}"]) from None
    text = log.read_text(errors="replace") if log is not None else output.decode(errors="replace")
    if process.returncode not in accept:
        if stopping():
            raise Failure("stopped before it was done.", status=130)
        shown = [f"$ {command}", *text.splitlines()[-25:]]
        sentence = f"{what} failed with status {process.returncode}."
        if process.returncode < 0:
            raise Failure(sentence, detail=shown)
        raise Ended(sentence, detail=shown, text=text)
    return text


def in_parallel(tasks: Sequence[Callable[[], T]], *, width: int) -> list[T]:
    """Runs the tasks, at most `width` at a time, and returns their results in order.

    The first failure, or an interrupt, ends the processes of all the others.
    """
    with ThreadPoolExecutor(max_workers=max(1, width)) as pool:
        try:
            futures = [pool.submit(task) for task in tasks]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future in done:
                    future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            pool.shutdown()
            _stopping.clear()
            raise
    return [future.result() for future in futures]
