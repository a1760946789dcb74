# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH118, PTH123, PTH208
"""segments.py DIRECTORY FIRST COUNT PACKETS: MPEG-TS segments as a recorder writes them, of numbered null packets.

segments.py list DIRECTORY: each segment's name and the hash of what is in it.
"""

import hashlib
import os
import sys

PACKET_BYTES = 188


def segment(number: int, packets: int) -> bytes:
    """Packets of PID 8191, whose payload says which segment it is."""
    payload = number.to_bytes(8, "big") * 23
    sixteen = b"".join(bytes([0x47, 0x1F, 0xFF, 0x10 | index]) + payload for index in range(16))
    return (sixteen * (packets // 16 + 1))[: packets * PACKET_BYTES]


if sys.argv[1] == "list":
    for name in sorted(os.listdir(sys.argv[2])):
        with open(os.path.join(sys.argv[2], name), "rb") as file:
            print(name, hashlib.file_digest(file, "sha256").hexdigest())
else:
    directory, first, count, packets = sys.argv[1], *map(int, sys.argv[2:])
    for number in range(first, first + count):
        data = segment(number, packets)
        with open(f"{directory}/{number:06}.ts", "wb", buffering=65536) as file:
            for at in range(0, len(data), 1316):  # what a datagram of a camera carries
                file.write(data[at : at + 1316])
