#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Puts /dev/shd1, a solid-state disk, in front of ext4 on /dev/shd0. Runs inside the machine:
#
#     front.sh make journal       ext4's journal lies on it
#     front.sh make writecache    dm-writecache: all writes go to it
#     front.sh make cache         dm-cache, write-back, as its policy decides
#     front.sh make bcache        bcache, write-back, as it decides
#     front.sh drain KIND         until nothing is on it alone; the file system stays mounted
#     front.sh stop KIND          after the file system is unmounted
#
# ext4 is on /dev/shd0, mounted at /mnt, when it begins, and mounted there again afterwards. For bcache it is made anew.
set -eu
disk=/dev/shd0 fast=/dev/shd1 mnt=/mnt
export DM_DISABLE_UDEV=1

usage() {
	echo "front.sh: expected make, drain or stop, and journal, writecache, cache or bcache; got: $*" >&2
	exit 2
}

sectors() {
	blockdev --getsz "$1"
}

cache_table() {
	echo "0 $(sectors $disk) cache /dev/mapper/map /dev/mapper/fast $disk 512 1 writeback $1 0"
}

make() {
	umount $mnt
	on=$disk
	case $1 in
	journal)
		mke2fs -q -O journal_dev -b 4096 $fast 262144
		tune2fs -O ^has_journal $disk >/dev/null
		tune2fs -J device=$fast $disk >/dev/null
		;;
	writecache)
		dmsetup create front --table "0 $(sectors $disk) writecache s $disk $fast 4096 0"
		;;
	cache)
		dmsetup create map --table "0 2097152 linear $fast 0"
		dmsetup create fast --table "0 $(($(sectors $fast) - 2097152)) linear $fast 2097152"
		dd if=/dev/zero of=/dev/mapper/map bs=4096 count=1 status=none
		dmsetup create front --table "$(cache_table smq)"
		;;
	bcache)
		wipefs -q -a $disk
		make-bcache --writeback -C $fast -B $disk >/dev/null
		echo $fast >/sys/fs/bcache/register
		echo $disk >/sys/fs/bcache/register
		on=/dev/bcache0
		# The tables of inodes are made when they are needed, and not in the background.
		mke2fs -q -t ext4 -E nodiscard $on
		;;
	esac
	[ ! -e /dev/mapper/front ] || on=/dev/mapper/front
	mount -o noatime,noinit_itable $on $mnt
}

drain() {
	sync
	case $1 in
	writecache)
		dmsetup message front 0 flush
		;;
	cache)
		dmsetup reload front --table "$(cache_table cleaner)"
		dmsetup suspend front
		dmsetup resume front
		# Word 14 of the status counts the blocks that the disk does not have yet.
		while [ "$(dmsetup status front | cut -d ' ' -f 14)" != 0 ]; do
			sleep 1
		done
		dmsetup reload front --table "$(cache_table smq)"
		dmsetup suspend front
		dmsetup resume front
		;;
	bcache)
		echo 0 >/sys/block/bcache0/bcache/writeback_percent
		while [ "$(cat /sys/block/bcache0/bcache/state)" != clean ]; do
			sleep 1
		done
		;;
	esac
}

# What the unmount wrote has to get home, too.
stop() {
	drain "$1"
	case $1 in
	writecache) dmsetup remove --retry front ;;
	cache) dmsetup remove --retry front fast map ;;
	bcache) echo 1 >/sys/block/bcache0/bcache/stop ;;
	esac
}

case ${1-}:${2-}:$# in
make:journal:2 | make:writecache:2 | make:cache:2 | make:bcache:2) ;;
drain:journal:2 | drain:writecache:2 | drain:cache:2 | drain:bcache:2) ;;
stop:journal:2 | stop:writecache:2 | stop:cache:2 | stop:bcache:2) ;;
*) usage "$@" ;;
esac
"$@"
