#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# An array of four disks that loses one and rebuilds on a fifth. Runs inside the machine:
#
#     array.sh make LEVEL MEMBER_GIB    /dev/shd0 to 3 as /dev/md0, ext4 on it, half full; disk 3 is then gone
#     array.sh make btrfs MEMBER_GIB    the same with Btrfs, of data and metadata two copies
#     array.sh rebuild                  on /dev/shd4, until it is done
#     array.sh rebuild SEED REPORT      the same, while ten blocks of 4 KiB a second are overwritten and synced
#     array.sh stop
#
# In the environment, for md: CHUNK_KIB (512 if not given), BITMAP (internal, none), SYNC_MIN_KIB and SYNC_MAX_KIB a
# second (md's own if not given), OPTIONS of ext4.
set -eu
md=/dev/md0 here=/tmp/array
export MDADM_NO_UDEV=1
beside=$(dirname "$0")/overwrite.py

usage() {
	echo "array.sh: expected make LEVEL MEMBER_GIB, rebuild [SEED REPORT], or stop; got: $*" >&2
	exit 2
}

# One file of so many MiB, which is overwritten later.
fill() {
	fallocate -l "$1M" $here/file
	dd if=/dev/zero of=$here/file bs=1M count="$1" conv=notrunc status=none
	sync
}

make() {
	mkdir -p $here
	if [ "$1" = btrfs ]; then
		mkfs.btrfs -q -K -d raid1 -m raid1 /dev/shd[0-3] >/dev/null
		mount -t btrfs /dev/shd0 $here
		fill $(($2 << 10))
		umount $here
		btrfs device scan --forget /dev/shd3
		mount -t btrfs -o degraded /dev/shd0 $here
		return
	fi
	chunk=--chunk=${CHUNK_KIB:-512}
	if [ "$1" = 1 ]; then
		chunk=
	fi
	# All disks are empty, so the parity is right.
	# shellcheck disable=SC2086
	mdadm --create $md --quiet --run --assume-clean --level="$1" --raid-devices=4 \
		--size=$(($2 << 20)) $chunk --bitmap="${BITMAP:-internal}" --metadata=1.2 /dev/shd[0-3]
	# Nothing is left to be done in the background.
	mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 $md
	mount -o "${OPTIONS:-defaults}" $md $here
	fill $(($(stat -f -c %b $here) * $(stat -f -c %S $here) / 2 >> 20))
	mdadm --quiet $md --fail /dev/shd3 --remove /dev/shd3
}

# Until md has written all of the new disk.
wait_for_md() {
	# The kernel's thread begins a little later.
	sleep 5
	while grep -q -e recovery -e resync /proc/mdstat; do
		sleep 1
	done
	if ! grep -q '\[UUUU\]' /proc/mdstat; then
		echo 'array.sh: the array has lost a disk' >&2
		exit 1
	fi
}

rebuild() {
	if [ $# -eq 2 ]; then
		python3 -I "$beside" $here/file /tmp/stop "$1" "$2" &
	fi
	if [ -e $md ]; then
		echo "${SYNC_MIN_KIB:-system}" >/sys/block/md0/md/sync_speed_min
		echo "${SYNC_MAX_KIB:-system}" >/sys/block/md0/md/sync_speed_max
		mdadm --quiet $md --add /dev/shd4
		wait_for_md
	else
		btrfs replace start -B 4 /dev/shd4 $here
	fi
	touch /tmp/stop
	wait
}

stop() {
	umount $here
	if [ -e $md ]; then
		mdadm --quiet --stop $md
	fi
}

case ${1-}:$# in
make:3 | rebuild:1 | rebuild:3 | stop:1) "$@" ;;
*) usage "$@" ;;
esac
