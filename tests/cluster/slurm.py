# SPDX-License-Identifier: MIT OR Apache-2.0
"""Slurm on one host: a controller and two nodes, from Debian's packages, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "squeue", "scancel", "sinfo")
PACKAGES = "munge slurmctld slurmd slurm-client"
NODES = ("n1", "n2")
_START_S = 60

_CONF = """ClusterName=shingle
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
# No control groups, so that it runs in a container.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
# Seconds until a node that does not answer is down, and its jobs are queued again.
SlurmdTimeout=10
# A node that was restarted takes jobs again.
ReturnToService=2
# Seconds that squeue knows of an ended job.
MinJobAge=600
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=8000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=8000
PartitionName=cells Nodes=ALL Default=YES State=UP
"""


def missing() -> list[str]:
    """Programs of it that this host lacks."""
    return [each for each in PROGRAMS if shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin") is None]


class Slurm:
    """The daemons, as children of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def seen_by(self, *argv: str | Path) -> list[str]:
        """A command for which our folder is /etc/slurm. A variable would not do: Snakemake's jobs delete it."""
        bound = f'mount --bind {shlex.quote(str(self.folder))} /etc/slurm && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", bound, "sh", *map(str, argv)]

    def call(self, *argv: str) -> str:
        done = subprocess.run(
            self.seen_by(*argv), env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{argv} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def running(self) -> dict[str, str]:
        """The node of each job that runs."""
        lines = self.call("squeue", "-h", "-t", "RUNNING", "-o", "%i %N").splitlines()
        return dict(line.split() for line in lines)

    def states(self) -> list[str]:
        """Of all jobs that are known still, in their order: number, state, times it was started anew."""
        return self.call("squeue", "-h", "-t", "all", "-S", "i", "-o", "%i %T %N").splitlines()

    def start_node(self, node: str, *options: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node, *options)

    def kill_node(self, node: str) -> None:
        """As by a loss of power: its daemon and all its jobs are gone before anything can tell of it."""
        here = {number for number, where in self.running().items() if where == node}
        self._daemons.pop(node).kill()
        steps, programs = [], []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if re.match(rf"slurmstepd: \[({'|'.join(here)})\.", (process / "cmdline").read_text()):
                    steps.append(int(process.name))
                elif f"SLURMD_NODENAME={node}\0" in (process / "environ").read_text(errors="replace"):
                    programs.append(int(process.name))
        for number in (*steps, *programs):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _start(self, name: str, *argv: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        self._daemons[name] = subprocess.Popen(self.seen_by(*argv), env=self.environment, stdout=log, stderr=log)

    def _prepare(self) -> None:
        munge = self.folder / "munge"
        self.folder.mkdir()
        munge.mkdir(mode=0o700)
        (self.folder / "state").mkdir()
        (munge / "key").touch(mode=0o600)
        (munge / "key").write_bytes(os.urandom(1024))
        (self.folder / "slurm.conf").write_text(
            _CONF.format(folder=self.folder, host=socket.gethostname().split(".")[0], ports=free_ports(3))
        )

    @contextlib.contextmanager
    def up(self) -> Iterator[Slurm]:
        self._prepare()
        files = [f"--{name}-file={self.folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
        try:
            self._start("munged", "munged", "--foreground", "--force", f"--socket={self.folder}/munge/socket", *files)
            wait_for((self.folder / "munge/socket").exists, "munged answers", _START_S)
            self._start("controller", "slurmctld", "-D")
            for node in NODES:
                self.start_node(node)
            wait_for(lambda: self.idle() == set(NODES), "two idle nodes", _START_S)
            yield self
        finally:
            with contextlib.suppress(AssertionError):
                self.call("scancel", "--full", "--user=root")
            for daemon in self._daemons.values():
                daemon.terminate()
            for daemon in self._daemons.values():
                daemon.wait(timeout=_START_S)

    def idle(self) -> set[str]:
        known = subprocess.run(
            self.seen_by("sinfo", "-h", "-N", "-t", "idle", "-o", "%N"),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return set(known.stdout.split())


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
