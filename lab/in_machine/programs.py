#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What programs write: databases, mail, backups, downloads, photos, packages, video. Runs inside the machine.

    programs.py prepare PROGRAM FOLDER SCALE SEED
    programs.py work PROGRAM FOLDER SCALE SEED REPORT

SQLite is SQLite itself; the others are generators with the calls that the programs make, which the head of each
class names. A report is JSON: operations by kind, their times as an application sees them, and bytes of the user's.
"""

import json
import math
import os
import random
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20


class Meter:
    """How long each operation takes, by kind."""

    def __init__(self) -> None:
        self.waits_ns: dict[str, list[int]] = {}
        self.written = 0

    @contextmanager
    def operation(self, kind: str, size: int = 0) -> Iterator[None]:
        before = time.monotonic_ns()
        yield
        self.waits_ns.setdefault(kind, []).append(time.monotonic_ns() - before)
        self.written += size

    def report(self, name: str, args: dict[str, object], ns: int) -> dict[str, object]:
        return {
            "name": name,
            "args": args,
            "operations": {kind: len(waits) for kind, waits in self.waits_ns.items()},
            "parts": [{"name": "work", "ns": ns}],
            "user_written_bytes": self.written,
            "user_read_bytes": 0,
            "latency_ns": {kind: _percentiles(sorted(waits)) for kind, waits in self.waits_ns.items()},
        }


def _percentiles(waits: list[int]) -> dict[str, int]:
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    found = {name: waits[int((len(waits) - 1) * part)] for name, part in parts.items()}
    return {"count": len(waits), "min": waits[0], "mean": sum(waits) // len(waits), **found, "max": waits[-1]}


class Program:
    """One program in its own folder. `scale` multiplies how much there is and how much is done."""

    # The program that this is with another setting: both draw the same.
    OF = ""

    def __init__(self, folder: Path, scale: float, seed: int, do: str) -> None:
        self.folder = folder
        self.scale = scale
        # What is replaced is not replaced by what has the same sizes.
        self.chance = random.Random(f"{self.OF or type(self).__name__} {do} {seed}")
        self.data = random.Random(seed).randbytes(8) * MIB
        self.meter = Meter()

    def count(self, full: int) -> int:
        return max(1, round(full * self.scale))

    def prepare(self) -> None:
        """What is there before the work begins."""

    def work(self) -> None:
        raise NotImplementedError

    def bytes(self, size: int) -> memoryview:
        """One word again and again, which a simulated drive stores in no space. No file system here compresses."""
        return memoryview(self.data)[:size]

    def between(self, least: int, most: int) -> int:
        """A size, evenly by its logarithm."""
        return round(math.exp(self.chance.uniform(math.log(least), math.log(most))))

    def write(self, path: Path, size: int, *, sync: bool = False) -> None:
        with path.open("wb", buffering=0) as file:
            for start in range(0, size, MIB):
                file.write(self.bytes(min(MIB, size - start)))
            if sync:
                os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


class SqliteWal(Program):
    """SQLite: one row of a table of 250 MB is changed in each transaction, write-ahead log, synchronous=FULL."""

    MODE, SYNCHRONOUS, TRANSACTIONS, ROWS, ROW = "wal", "FULL", 5_000, 250_000, 1_000

    def connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.folder / "data.db", isolation_level=None)
        database.execute(f"PRAGMA journal_mode={self.MODE}").fetchall()
        database.execute(f"PRAGMA synchronous={self.SYNCHRONOUS}")
        return database

    def prepare(self) -> None:
        database = self.connect()
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, body BLOB)")
        database.execute("BEGIN")
        rows = ((number, self.bytes(self.ROW)) for number in range(self.count(self.ROWS)))
        database.executemany("INSERT INTO item VALUES (?, ?)", rows)
        database.execute("COMMIT")
        database.close()

    def work(self) -> None:
        database = self.connect()
        for number in range(self.count(self.TRANSACTIONS)):
            self.change(database, [number])
        database.close()

    def change(self, database: sqlite3.Connection, numbers: list[int]) -> None:
        """A row for each number, in one transaction. SQLite writes no page that stays as it is."""
        rows = [
            (number.to_bytes(8, "big") + self.bytes(self.ROW - 8), self.chance.randrange(self.count(self.ROWS)))
            for number in numbers
        ]
        with self.meter.operation("transaction", self.ROW * len(rows)):
            if len(rows) > 1:
                database.execute("BEGIN")
            for row in rows:
                database.execute("UPDATE item SET body = ? WHERE id = ?", row)
            if len(rows) > 1:
                database.execute("COMMIT")


class SqliteRollback(SqliteWal):
    """The same with a rollback journal, SQLite's default."""

    MODE, TRANSACTIONS = "delete", 2_000


class SqliteNormal(SqliteWal):
    """SqliteWal with synchronous=NORMAL: the log is synced before its pages go home, not for each transaction. A power
    cut may take the last transactions, and damages nothing (SQLite's documentation of the pragma)."""

    OF = "SqliteWal"
    SYNCHRONOUS = "NORMAL"


class SqliteBatch(SqliteWal):
    """SqliteWal with a hundred rows in each transaction."""

    OF = "SqliteWal"
    AT_ONCE = 100

    def work(self) -> None:
        database = self.connect()
        numbers = list(range(self.count(self.TRANSACTIONS)))
        for first in range(0, len(numbers), self.AT_ONCE):
            self.change(database, numbers[first : first + self.AT_ONCE])
        database.close()


class Postgres(Program):
    """PostgreSQL under pgbench, by its pattern (its documentation, chapter 28): an fdatasync of the log for each
    transaction, a page of 8 KiB whole in the log when it changes first, and checkpoints that write changed pages of a
    heap of 2 GiB in order and fsync its files of 1 GiB."""

    PAGE, SEGMENT, LOG = 8 * KIB, 1 << 30, 16 * MIB
    PAGES, TRANSACTIONS, CHECKPOINT, CHANGED = 1 << 18, 6_000, 2_000, 3

    def prepare(self) -> None:
        for number, size in enumerate(self.segments()):
            self.write(self.folder / f"heap.{number}", size)
        for number in range(4):
            self.write(self.folder / f"log.{number}", self.LOG)

    def segments(self) -> list[int]:
        size = self.count(self.PAGES) * self.PAGE
        return [min(self.SEGMENT, size - start) for start in range(0, size, self.SEGMENT)]

    def work(self) -> None:
        heap = [os.open(self.folder / f"heap.{number}", os.O_RDWR) for number in range(len(self.segments()))]
        log = [os.open(self.folder / f"log.{number}", os.O_RDWR) for number in range(4)]
        changed: set[int] = set()
        at = 0
        transactions = self.count(self.TRANSACTIONS)
        for number in range(transactions):
            with self.meter.operation("transaction", self.PAGE):
                pages = {self.chance.randrange(self.count(self.PAGES)) for _ in range(self.CHANGED)}
                first = len(pages - changed)
                changed |= pages
                size = self.PAGE * (1 + first)
                which, place = divmod(at, self.LOG)
                os.pwrite(log[which % 4], self.bytes(size), min(place, self.LOG - size))
                self.commit(log[which % 4])
                at += size
            if (number + 1) % self.CHECKPOINT == 0 or number + 1 == transactions:
                with self.meter.operation("checkpoint", len(changed) * self.PAGE):
                    self.checkpoint(heap, sorted(changed))
                changed.clear()
        for fd in (*heap, *log):
            os.close(fd)

    def commit(self, log: int) -> None:
        os.fdatasync(log)

    def checkpoint(self, heap: list[int], pages: list[int]) -> None:
        for page in pages:
            which, place = divmod(page * self.PAGE, self.SEGMENT)
            os.pwrite(heap[which], self.bytes(self.PAGE), place)
        for fd in heap:
            os.fsync(fd)


class PostgresAsync(Postgres):
    """Postgres with synchronous_commit=off: the log is synced every 200 ms (wal_writer_delay). A power cut may take the
    transactions of three times that, and damages nothing (PostgreSQL's documentation, chapter 28.4)."""

    OF = "Postgres"
    DELAY_NS = 200_000_000
    synced_ns = 0

    def commit(self, log: int) -> None:
        if time.monotonic_ns() - self.synced_ns >= self.DELAY_NS:
            os.fdatasync(log)
            self.synced_ns = time.monotonic_ns()


class Mail(Program):
    """Maildir: a message is written to tmp, synced, renamed to new, and the folder synced; half of them are deleted."""

    BOXES, OLD, NEW = 50, 10_000, 5_000

    def prepare(self) -> None:
        for box in range(self.BOXES):
            for part in ("tmp", "new"):
                (self.folder / f"{box}" / part).mkdir(parents=True)
        for number in range(self.count(self.OLD)):
            self.write(self.folder / f"{number % self.BOXES}" / "new" / f"{number}", self.between(2 * KIB, 128 * KIB))

    def work(self) -> None:
        old = [(number % self.BOXES, number) for number in range(self.count(self.OLD))]
        for number in range(len(old), len(old) + self.count(self.NEW)):
            box = self.chance.randrange(self.BOXES)
            home, size = self.folder / f"{box}", self.between(2 * KIB, 128 * KIB)
            with self.meter.operation("delivery", size):
                self.write(home / "tmp" / f"{number}", size, sync=True)
                (home / "tmp" / f"{number}").rename(home / "new" / f"{number}")
                sync_folder(home / "new")
            old.append((box, number))
            if number % 2:
                box, gone = old.pop(self.chance.randrange(len(old)))
                with self.meter.operation("deletion"):
                    (self.folder / f"{box}" / "new" / f"{gone}").unlink()


class Torrent(Program):
    """A client of BitTorrent: sparse files whose pieces come in any order, in blocks of 16 KiB, without a sync."""

    BLOCK = 16 * KIB
    ALLOCATED = False
    FILES = ((16 * KIB, 256 * MIB), (256 * KIB, 512 * MIB), (4 * MIB, 1 << 30))

    def work(self) -> None:
        for piece, full in self.FILES:
            pieces = list(range(max(1, self.count(full) // piece)))
            self.chance.shuffle(pieces)
            with (self.folder / f"{piece}").open("wb", buffering=0) as file:
                if self.ALLOCATED:
                    os.posix_fallocate(file.fileno(), 0, len(pieces) * piece)
                else:
                    file.truncate(len(pieces) * piece)
                for each in pieces:
                    with self.meter.operation("piece", piece):
                        for start in range(0, piece, self.BLOCK):
                            os.pwrite(file.fileno(), self.bytes(self.BLOCK), each * piece + start)


class TorrentAllocated(Torrent):
    """Torrent that allocates its files whole, as clients can be told to."""

    OF = "Torrent"
    ALLOCATED = True


class Rsync(Program):
    """rsync --link-dest: each backup is a tree of hard links to the one before, with new files where something
    changed; the oldest of three is removed."""

    FILES, FOLDERS, BACKUPS, KEPT, CHANGED = 8_000, 400, 4, 3, 0.05

    def prepare(self) -> None:
        self.tree(0)

    def tree(self, backup: int) -> None:
        base, before = self.folder / f"{backup}", self.folder / f"{backup - 1}"
        for folder in range(self.FOLDERS):
            (base / f"{folder}").mkdir(parents=True)
        for number in range(self.count(self.FILES)):
            place = f"{number % self.FOLDERS}/{number}"
            size = self.between(KIB, MIB)
            if backup and self.chance.random() >= self.CHANGED:
                with self.meter.operation("link"):
                    (base / place).hardlink_to(before / place)
                continue
            with self.meter.operation("file", size):
                hidden = (base / place).with_name(f".{number}.new")
                self.write(hidden, size)
                hidden.rename(base / place)

    def work(self) -> None:
        for backup in range(1, self.BACKUPS + 1):
            self.tree(backup)
            os.sync()
            if backup >= self.KEPT:
                with self.meter.operation("removal"):
                    shutil.rmtree(self.folder / f"{backup - self.KEPT}")


class Packages(Program):
    """dpkg: the files of a package are written beside the old ones, synced, and renamed; then its list of packages."""

    PACKAGES, FILES, STATUS = 200, 20, 2 * MIB
    # Whether each file is synced; the list always is.
    SYNCED = True

    def prepare(self) -> None:
        for package in range(self.count(self.PACKAGES)):
            (self.folder / f"{package}").mkdir()
            for number in range(self.FILES):
                self.write(self.folder / f"{package}" / f"{number}", self.between(KIB, 256 * KIB))
        self.write(self.folder / "status", self.STATUS)

    def replace(self, path: Path, size: int, *, sync: bool = True) -> None:
        beside = path.with_name(f"{path.name}.dpkg-new")
        self.write(beside, size, sync=sync)
        beside.rename(path)
        self.meter.written += size

    def work(self) -> None:
        for package in range(self.count(self.PACKAGES)):
            with self.meter.operation("package"):
                for number in range(self.FILES):
                    path = self.folder / f"{package}" / f"{number}"
                    self.replace(path, self.between(KIB, 256 * KIB), sync=self.SYNCED)
                self.replace(self.folder / "status", self.STATUS)
                sync_folder(self.folder)


class PackagesUnsafe(Packages):
    """Packages with dpkg --force-unsafe-io: a power cut may leave files of packages empty."""

    OF = "Packages"
    SYNCED = False


class Photos(Program):
    """An import of photos: each is copied, two smaller pictures are made, and a row goes into SQLite."""

    PHOTOS, SIZE, SMALLER = 250, 6 * MIB, (200 * KIB, 30 * KIB)

    def work(self) -> None:
        database = sqlite3.connect(self.folder / "catalogue.db", isolation_level=None)
        database.execute("CREATE TABLE photo (id INTEGER PRIMARY KEY, facts BLOB)")
        for kind in ("photos", "smaller"):
            (self.folder / kind).mkdir()
        for number in range(self.count(self.PHOTOS)):
            with self.meter.operation("photo", self.SIZE + sum(self.SMALLER)):
                self.write(self.folder / "photos" / f"{number}", self.SIZE)
                for size in self.SMALLER:
                    self.write(self.folder / "smaller" / f"{number}.{size}", size)
                database.execute("INSERT INTO photo VALUES (?, ?)", (number, self.bytes(500)))
        database.close()


class Bundle(Program):
    """A backup into a sparse bundle, as Time Machine makes it on a file server: pieces of bands of 8 MiB are
    overwritten, and each backup ends with a sync of the bands that changed."""

    BAND, BANDS, BACKUPS, PIECES = 8 * MIB, 256, 3, 400

    def prepare(self) -> None:
        for band in range(self.count(self.BANDS)):
            self.write(self.folder / f"{band:x}", self.BAND)

    def work(self) -> None:
        for _ in range(self.BACKUPS):
            changed: dict[int, int] = {}
            for _ in range(self.count(self.PIECES)):
                band, size = self.chance.randrange(self.count(self.BANDS)), self.between(64 * KIB, MIB) & ~4095
                with self.meter.operation("piece", size):
                    if band not in changed:
                        changed[band] = os.open(self.folder / f"{band:x}", os.O_RDWR)
                    os.pwrite(changed[band], self.bytes(size), self.chance.randrange(self.BAND - size) & ~4095)
            with self.meter.operation("sync"):
                for fd in changed.values():
                    os.fsync(fd)
                    os.close(fd)


class Video(Program):
    """A recorder: eight cameras append in turn to files of 64 MiB, the oldest files are removed."""

    CAMERAS, FILE, PIECE, WRITTEN, KEPT = 8, 64 * MIB, 512 * KIB, 3 << 30, 1536 * MIB

    def work(self) -> None:
        files: list[Path] = []
        open_files: dict[int, int] = {}
        for number in range(self.count(self.WRITTEN) // self.PIECE):
            camera, part = number % self.CAMERAS, number // self.CAMERAS
            with self.meter.operation("piece", self.PIECE):
                if part % (self.FILE // self.PIECE) == 0:
                    if camera in open_files:
                        os.close(open_files[camera])
                    files.append(self.folder / f"{camera}.{part}")
                    open_files[camera] = os.open(files[-1], os.O_WRONLY | os.O_CREAT)
                os.write(open_files[camera], self.bytes(self.PIECE))
            if len(files) * self.FILE > self.count(self.KEPT) + self.CAMERAS * self.FILE:
                files.pop(0).unlink()
        for fd in open_files.values():
            os.close(fd)


PROGRAMS = {
    each.__name__: each
    for each in (
        SqliteWal, SqliteRollback, SqliteNormal, SqliteBatch, Postgres, PostgresAsync, Mail, Torrent, TorrentAllocated,
        Rsync, Packages, PackagesUnsafe, Photos, Bundle, Video,
    )
}  # fmt: skip


def main(do: str, name: str, folder: str, scale: str, seed: str, report: str = "") -> None:
    program = PROGRAMS[name](Path(folder), float(scale), int(seed), do)
    if do == "prepare":
        program.folder.mkdir()
        program.prepare()
        return
    before = time.monotonic_ns()
    program.work()
    args: dict[str, object] = {"scale": float(scale), "seed": int(seed)}
    told = program.meter.report(name, args, time.monotonic_ns() - before)
    Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
