# SPDX-License-Identifier: MIT OR Apache-2.0
"""How stock e2fsck is asked: to replay a journal as the next mount would, and to check without changing anything."""

# Never with -f: behind the replay e2fsck would repair what is to be found.
REPLAY = ("/sbin/e2fsck", "-E", "journal_only", "-y")
CHECK = ("/sbin/e2fsck", "-fn")
