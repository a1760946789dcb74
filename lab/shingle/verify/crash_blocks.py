# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which version of each block a power cut may leave: none that is older than the last sync, and none of another block.

lab/in_machine/data_work.py writes blocks that say which they are, notes each version, and marks each sync.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

# Files that come and go have numbers from here, and small ones that grow from there; data_work.py has the same.
PASSING, SMALL = 1000, 1 << 60
# By file and block: the oldest version that may be there.
Held = Mapping[int, Mapping[int, int]]
# Of each file the versions of its blocks; None: zeros; or how a block begins that is none of them.
Files = Mapping[int, Sequence[int | str | None]]


@dataclass(frozen=True)
class Blocks:
    """What one record and those before it wrote, and what held at its beginning."""

    # The version that was written last.
    version: int = 0
    # Blocks of each file that stays.
    files: Mapping[int, int] = field(default_factory=dict)
    # Each write, in order: version, file, block.
    log: Sequence[tuple[int, int, int]] = ()
    before: Sequence[tuple[int, int, int]] = ()
    began_with: Held = field(default_factory=dict)

    @classmethod
    def noted(cls, notes: Path, before: Sequence[tuple[int, int, int]] = (), began_with: Held | None = None) -> Blocks:
        """From data_work.py's notes of one machine."""
        said = json.loads(notes.read_text())
        files = {int(file): len(versions) for file, versions in said["files"].items() if int(file) < PASSING}
        return cls(said["version"], files, [tuple(each) for each in said["log"]], before, began_with or {})

    def after(self, marks: Sequence[tuple[int, str]], place: int) -> Blocks:
        """What a machine begins with that goes on after a cut at `place`."""
        return Blocks(self.version, self.files, (), self.written, self.held(marks, place))

    def notes(self) -> str:
        """For the next machine, that cannot know which passing files a cut has left."""
        files = {str(file): [0] * count for file, count in self.files.items()}
        return json.dumps({"version": self.version, "files": files, "log": []})

    @property
    def written(self) -> Sequence[tuple[int, int, int]]:
        return [*self.before, *self.log]

    @cached_property
    def _versions(self) -> Mapping[tuple[int, int], set[int]]:
        """Of each block all that were ever written, by file and block."""
        found: dict[tuple[int, int], set[int]] = {}
        for version, file, block in self.written:
            found.setdefault((file, block), set()).add(version)
        return found

    def held(self, marks: Sequence[tuple[int, str]], place: int) -> Held:
        """What must be there after a cut at `place`: a mark of a sync says how far its file had been written."""
        synced: dict[int, int] = {}
        gone = set()
        for at, text in marks:
            if at >= place:
                break
            match text.split():
                case ["unlinked", number]:
                    gone.add(int(number))
                case ["synced", number, last]:
                    synced[int(number)] = int(last)
        found = {file: dict(blocks) for file, blocks in self.began_with.items()}
        for version, file, block in self.log:
            if version <= synced.get(file, 0):
                found.setdefault(file, {})[block] = version
        return {file: blocks for file, blocks in found.items() if file not in gone}

    def wrong(self, files: Files, held: Held) -> list[str]:
        """What is not as it must be; of a file that was never synced a block may hold zeros, and it may be missing."""
        counts = Counter(file for file, _ in self._versions)
        found = [f"file {file} was synced and is gone" for file in sorted(held.keys() - files.keys())]
        for file, there in sorted(files.items()):
            least = held.get(file, {})
            # Of a file that grows, what was not synced may be missing.
            is_long = len(there) >= len(least) if file >= SMALL else len(there) == counts[file]
            if least and not is_long:
                found.append(f"file {file} has {len(there)} blocks instead of {counts[file]}")
            for block, version in enumerate(there):
                if version is None and block not in least:
                    continue
                if not isinstance(version, int):
                    found.append(f"file {file}, block {block} holds {version or 'zeros'}")
                elif version not in self._versions.get((file, block), ()):
                    found.append(f"file {file}, block {block} has version {version}, which was not written there")
                elif version < least.get(block, 0):
                    found.append(f"file {file}, block {block} has version {version}, and {least[block]} was synced")
        return found
