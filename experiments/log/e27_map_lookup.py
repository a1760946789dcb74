# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reading through the map takes no longer than reading the same blocks of the log directly: FAST'17, section 4.4.

The paper puts 10,000 mappings to random blocks of the journal into its map, reads the blocks in a fixed random order
with a cold cache, then the same blocks in the same order without the map. Here the mappings are those of 10,000 of the
blocks that MakeDirs left in the log. Buffered reads of the device at their homes go through the map; reads of their
places in the log do not. The processor's part of a lookup takes no virtual time: what the disk does is compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, drive, fs, job, run, seconds, workload

DRIVE, LAZY = "wd5000ys", "ext4-lazy"
NAME, MAPPED, DIRECT = "MakeDirs", "ReadMapped", "ReadDirect"
BLOCKS = 10_000
SCALE = 0.02
PLACES = f"{job.OUT}/places"
# The newest copy of each block, and of these a random part in a random order: home and place in the log.
CHOOSE = f"""
import random, re, subprocess
def debugfs(request):
    argv = ["/sbin/debugfs", "-R", request, "{job.DEVICE}"]
    return subprocess.run(argv, capture_output=True, check=True, text=True).stdout
listed = debugfs("dump_extents -l <8>")
rows = re.findall(r"^ *\\d+/ *\\d+ +\\d+/ *\\d+ +(\\d+) - +(\\d+) +(\\d+) -", listed, re.MULTILINE)
extents = [tuple(map(int, row)) for row in rows]
def place(log_block):
    return next(at + log_block - first for first, last, at in extents if first <= log_block <= last)
said = re.findall(r"FS block (\\d+) logged at .*journal block (\\d+) \\(flags (0x[0-9a-f]+)", debugfs("logdump -a"))
# Bit 0: the copy was escaped, and is not what is read through the map, byte for byte.
newest = {{int(home): int(at) for home, at, flags in said if not int(flags, 16) & 1}}
chosen = random.Random({{seed}}).sample(sorted(newest), {BLOCKS})
with open("{PLACES}", "w") as file:
    file.writelines(f"{{home}} {{place(newest[home])}}\\n" for home in chosen)
"""
READ = f"""
import hashlib, os, sys
column, other = int(sys.argv[1]), sys.argv[2]
with open("{PLACES}") as file:
    places = [int(line.split()[column]) for line in file]
disk = os.open("{job.DEVICE}", os.O_RDONLY)
os.posix_fadvise(disk, 0, 0, os.POSIX_FADV_RANDOM)
seen = hashlib.sha256()
for place in places:
    seen.update(os.pread(disk, 4096, 4096 * place))
if os.path.exists(other):
    assert open(other).read() == seen.hexdigest(), "the map led to other blocks"
with open(other, "w") as file:
    file.write(seen.hexdigest())
"""


@dataclass(frozen=True)
class ReadBothWays(workload.Plan):
    @property
    def phases(self) -> tuple[str, ...]:
        return (*self.names, MAPPED, DIRECT, workload.UNMOUNT)

    def steps(self) -> list[job.Step]:
        *load, unmount, cleaned = super().steps()
        python = "/usr/bin/python3"
        digest = f"{job.OUT}/digest"
        steps = [*load, job.run([python, "-c", CHOOSE.replace("{seed}", f"{self.seed}")])]
        for column, phase in enumerate((MAPPED, DIRECT)):
            steps += [job.drop_caches(), job.run([python, "-c", READ, f"{column}", digest], phase=phase)]
        return [*steps, unmount, cleaned]


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = ReadBothWays((NAME,), {NAME: scale}, seed)
    return [run.Run(drive.find(DRIVE), fs.find(LAZY), plan)]


def only_the_log_is_read(records: Sequence[Record]) -> bool:
    read = [cell(records, LAZY, phase) for phase in (MAPPED, DIRECT)]
    return all(
        each["journal_read_bytes"] == BLOCKS * 4096 and each["total_read_bytes"] == each["journal_read_bytes"]
        for each in read
    )


TIMES = (
    Claim(
        "T15", f"reading {BLOCKS:,} mapped blocks, over the same without the lookup", "", 1, 1,
        lambda records: seconds(LAZY, MAPPED)(records) / seconds(LAZY, DIRECT)(records), 0.02, better="low",
        basis="constructed",  # Computing takes no virtual time.
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e27-map-lookup",
    claim="reading blocks through the map takes no longer than reading them directly",
    source="FAST'17, section 4.4",
    runs=runs,
    scale=SCALE,
    scaling="10,000 blocks are read, whatever the size of the log's contents.",
    phases=(NAME, MAPPED, DIRECT, workload.UNMOUNT),
    expectations=(
        Expectation("both ways the disk reads the log, each block once, and nothing else", only_the_log_is_read),
    ),
    claims=TIMES,
    draw=bars.of_claims(bars.Group("Section 4.4: reading through the map", "part of the time without", TIMES)),
)
