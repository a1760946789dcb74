# SPDX-License-Identifier: MIT OR Apache-2.0
"""The volumes of owners: what is made, what is on it, and which tool is run on it."""

from __future__ import annotations

from dataclasses import dataclass

from shingle.failure import unknown_name
from shingle.verify.crash_workload import LAZY, STOCK

# What is there before: some hundred files with all that a listing compares, and directories of several blocks.
FILES = """
import os, random, sys
chance, top = random.Random(sys.argv[2]), f'/mnt/{sys.argv[1]}'
os.mkdir(top)
for number in range(8):
    place = f'{top}/{number}'
    os.mkdir(place)
    os.chmod(place, chance.choice((0o755, 0o700, 0o1777)))
    for name in range(chance.randrange(8, 20)):
        path = f'{place}/{name}' + 'n' * chance.randrange(40)
        with open(path, 'wb') as file:
            file.write(chance.randbytes(chance.choice((0, 60, 900, 5000, 20000))))
            if chance.randrange(9) == 0:
                file.seek(chance.randrange(1 << 18), 1)
                file.write(b'behind a hole')
        os.chown(path, chance.randrange(4000), chance.randrange(4000))
        os.chmod(path, chance.choice((0o644, 0o600, 0o4755)))
        if chance.randrange(3) == 0:
            os.setxattr(path, 'user.kind', chance.randbytes(chance.choice((9, 300))))
        if chance.randrange(9) == 0:
            os.symlink(f'../{name}', path + '-link')
def linked(name, lengths):
    place = f'{top}/{name}'
    os.mkdir(place)
    with open(f'{place}/file', 'w') as file:
        file.write(name)
    for number, length in enumerate(lengths):
        os.link(f'{place}/file', f'{place}/' + f'{number:04}'.ljust(length, 'n'))
linked('wide', [chance.randrange(100, 240) for _ in range(40)])
# A block, to its last byte, with '.', '..' and 'file': there is no room for a checksum.
for number in range(3):
    linked(f'full{number}', [248] * ((int(sys.argv[3]) - 24 - 16 - 216) // 256) + [208])
os.sync()
"""


@dataclass(frozen=True)
class Kind:
    """A volume, and what is run on it."""

    tool: str
    name: str
    summary: str
    mkfs: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    journal_mib: int = 4
    block_bytes: int = 4096
    # How the files come onto it.
    mount: str = STOCK
    # The machine stops without an unmount.
    unclean: bool = False
    # The tool runs while it is mounted.
    mounted: bool = False
    disk_mib: int = 48
    # Only when it is named.
    asked_for: bool = False

    @property
    def logged(self) -> bool:
        """There is something in the log at first."""
        return self.unclean or self.mount == LAZY

    @property
    def title(self) -> str:
        return f"{self.tool}/{self.name}"


_OLD = ("-O", "^metadata_csum,^64bit")
_KINDS = (
    Kind("convert", "ext3", "no checksums, no extents, a small journal", ("-t", "ext3")),
    Kind("convert", "ext2", "no checksums, no extents, no journal", ("-t", "ext2")),
    Kind("convert", "old", "ext4 of 2012: extents and uninit_bg, no checksums", ("-t", "ext4", "-O",
         "^metadata_csum,^64bit,uninit_bg")),
    Kind("convert", "old-1k", "the same with blocks of 1 KiB", ("-t", "ext4", *_OLD), block_bytes=1024, disk_mib=40),
    Kind("convert", "groups", "the same with small groups: convert chooses the log's place", ("-t", "ext4", *_OLD,
         "-g", "1024")),
    Kind("convert", "crashed", "no checksums, and not unmounted", ("-t", "ext4", *_OLD), unclean=True),
    Kind("convert", "journal", "checksums, a journal that is too small", ("-t", "ext4")),
    Kind("convert", "quota", "quota and fast commits, no checksums", ("-t", "ext4", "-O",
         "^metadata_csum,quota,fast_commit"), ("quotatype=usrquota:grpquota",)),
    Kind("convert", "kept", "a log that is kept, in a journal that is too small", ("-t", "ext4"), mount=LAZY),
    Kind("drain", "kept", "a log that is kept", ("-t", "ext4"), mount=LAZY),
    Kind("drain", "kept-1k", "the same with blocks of 1 KiB", ("-t", "ext4"), block_bytes=1024, mount=LAZY),
    Kind("drain", "crashed", "a log that is kept, and not unmounted", ("-t", "ext4"), mount=LAZY, unclean=True),
    Kind("drain", "quota", "a log that is kept, with quota and an orphan file", ("-t", "ext4", "-O",
         "quota,orphan_file"), ("quotatype=usrquota:grpquota",), mount=LAZY, unclean=True),
    Kind("drain", "inline", "a log that is kept, with small files in their inodes", ("-t", "ext4", "-O",
         "inline_data"), journal_mib=12, mount=LAZY),
    Kind("drain", "stock", "a log of stock ext4, for comparison", ("-t", "ext4"), unclean=True, asked_for=True),
    Kind("drain", "mounted", "of a mounted volume", ("-t", "ext4"), mount=LAZY, mounted=True),
    Kind("drain", "mounted-1k", "of a mounted volume with blocks of 1 KiB", ("-t", "ext4"), block_bytes=1024,
         mount=LAZY, mounted=True),
)  # fmt: skip
KINDS = {each.title: each for each in _KINDS}


def find(title: str) -> Kind:
    if title not in KINDS:
        raise unknown_name("volume of the owners' tools", title, KINDS)
    return KINDS[title]
