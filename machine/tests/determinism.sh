#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Two runs with one seed are identical to the byte: every request of the trace,
# with its times, and every line of the results. One comparison for each cause
# of differences that was found (docs/design/machine.md).
# usage: determinism.sh LINUX GUEST SHINGLE-DRIVE
set -eu
. "$(dirname "$0")/common.sh"

# ext4 with everything that draws randomness or waits for a timer: UUIDs, hash
# seeds, several writers, a reader of urandom, background writeback.
job='{"steps": [
 {"do": "exec", "argv": ["/sbin/mkfs.ext4", "-q", "-F", "/dev/shd0"]},
 {"do": "mount", "fs": "ext4"},
 {"do": "exec", "argv": ["/bin/sh", "-c",
  "for w in 1 2 3; do (for i in $(seq 40); do mkdir /mnt/$w-$i; head -c 70000 /dev/urandom >/mnt/$w-$i/f; done) & done; wait; mount -t tmpfs none /media 2>/dev/null; free >/mnt/free; cat /proc/cmdline >/mnt/cmdline; env >/mnt/env"]},
 {"do": "sleep", "seconds": 40},
 {"do": "exec", "argv": ["/bin/sh", "-c", "cat /mnt/free /mnt/*/f | cksum"], "stdout": "sum"},
 {"do": "umount"}]}'
new_drive "$work/x.drive"

# run NAME DIRECTORY [arguments]
run() {
	name=$1
	out=$2
	shift 2
	mkdir -p "$out"
	echo "$job" >"$out/job.json"
	boot "$out" shingle.drive="${drive:-$work/x.drive}" "$@"
	[ "$status" = 0 ] || {
		not_ok "$name: the machine ended with status $status"
		tail -n 5 "$out/console"
	}
	[ -s "$out/trace" ] || not_ok "$name: no trace"
}

same() {
	for file in trace results.jsonl sum; do
		cmp "$work/first/$file" "$2/$file" || {
			not_ok "$1: $file differs"
			return
		}
	done
	ok "$1"
}

run first "$work/first" shingle.seed=7

run repeat "$work/again" shingle.seed=7
same "repeat: a second run is the same" "$work/again"

long=$work/a-directory-with-a-rather-long-name/and-one-more-below-it
mkdir -p "$long"
cp "$work/x.drive" "$long/a-drive-with-a-long-name.drive"
drive=$long/a-drive-with-a-long-name.drive run paths "$long/o" shingle.seed=7 \
	shingle.save="$long/state"
same "paths: names of files and directories do not matter" "$long/o"

SHINGLE_TEST=$(head -c 60000 /dev/zero | tr '\0' x)
export SHINGLE_TEST
run environment "$work/environment" shingle.seed=7
unset SHINGLE_TEST
same "environment: the host's variables do not matter" "$work/environment"

spinners=
for _ in 1 2 3 4; do
	(while :; do :; done) &
	spinners="$spinners $!"
done
run load "$work/load" shingle.seed=7
# shellcheck disable=SC2086
kill $spinners
same "load: a busy host does not matter" "$work/load"

run seed "$work/seed" shingle.seed=8
if cmp -s "$work/first/trace" "$work/seed/trace"; then
	not_ok "seed: another seed gave the same trace"
else
	ok "seed: another seed is another run"
fi
exit "$failed"
