# SPDX-License-Identifier: MIT OR Apache-2.0
"""How stock e2fsck is asked: to replay a journal as the next mount would, and to check without changing anything.

Both say by their words, and not by their status alone, that nothing is wrong. Behind a replay e2fsck checks and repairs
everything by itself if a count, a checksum or the journal's inode is wrong; and a log that it cannot replay it leaves
out, and ends with status 0.
"""

import re

# Never with -f: behind the replay e2fsck would repair what is to be found.
REPLAY = ("/sbin/e2fsck", "-E", "journal_only", "-y")
CHECK = ("/sbin/e2fsck", "-fn")
# All that REPLAY says if there is nothing to repair. With the feature mmp it waits for other computers.
_REPLAYED = re.compile(
    r"$|e2fsck \d|\S+: recovering journal$|(Clearing|Truncating) orphaned inode \d+ "
    r"|MMP interval is \d+ seconds and total wait time is \d+ seconds\. Please wait\.\.\.$"
)
# CHECK's status where it was not allowed to mend something.
_LEFT = 4
# REPLAY frees the orphans of a volume with an orphan file, and leaves the file as it is. So CHECK asks for these.
_ORPHAN_FILE = re.compile(
    r"(Orphan file \(inode \d+\) block \d+ is not clean\.\nClear"
    r"|Failed to initialize orphan file\.\nRecreate"
    r"|Feature orphan_present is set but orphan file is clean\.\nClear)\? no\n"
)
_SUMS = re.compile(r"Free (blocks|inodes) count wrong \(\d+, counted=\d+\)\.\nFix\? no\n")


def is_replayed(status: int, said: str) -> bool:
    """Whether REPLAY did nothing but replay the whole journal and free orphans."""
    return status == 0 and all(map(_REPLAYED.match, said.splitlines()))


def is_content(status: int, said: str) -> bool:
    """Whether CHECK found nothing that anybody has to repair."""
    rest = _ORPHAN_FILE.sub("", said)
    return status == 0 or (status == _LEFT and rest != said and "? no" not in _SUMS.sub("", rest))
