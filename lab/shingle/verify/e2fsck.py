# SPDX-License-Identifier: MIT OR Apache-2.0
"""How stock e2fsck is asked: to replay a journal as the next mount would, and to check without changing anything."""

# Never with -f: behind the replay e2fsck would repair what is to be found.
REPLAY = ("/sbin/e2fsck", "-E", "journal_only", "-y")
CHECK = ("/sbin/e2fsck", "-fn")
# A replay alone leaves the orphans of a volume with this feature; what runs at boot frees them.
ORPHAN_FILE, BOOT = "orphan_file", ("/sbin/e2fsck", "-p")
# Its status where it was not allowed to mend something.
_LEFT = 4
# All that CHECK may still ask of such a volume, once the last orphan is gone.
_NO_ORPHANS = "Feature orphan_present is set but orphan file is clean.\nClear? no"


def is_content(status: int, said: str) -> bool:
    """Whether CHECK found nothing that anybody has to repair."""
    rest = said.replace(_NO_ORPHANS, "")
    return status == 0 or (status == _LEFT and rest != said and "? no" not in rest)
