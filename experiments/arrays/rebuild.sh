#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# An array of four disks loses one and rebuilds on a fifth, idle or under load:
#
#     exec --fs none --in lab/in_machine/overwrite.py:/tmp/overwrite.py -- rebuild.sh LEVEL MEMBER_GIB idle|load [io_timeout in ms]
#
# The last line says how it ended. Phases: fill, rebuild.
set -eu
case $#:${3-} in
[34]:idle | [34]:load) ;;
*)
	echo "rebuild.sh: expected LEVEL MEMBER_GIB idle|load [io_timeout in ms], got: $*" >&2
	exit 2
	;;
esac
level=$1 gib=$2 load=$3 timeout=${4:-30000}
md=/dev/md0

for disk in 0 1 2 3 4; do
	echo "$timeout" >/sys/block/shd$disk/queue/io_timeout
done
# All disks are empty, so the parity is right.
mdadm --create $md --quiet --run --assume-clean --level="$level" --raid-devices=4 \
	--size=$((gib << 20)) --bitmap=internal --metadata=1.2 /dev/shd0 /dev/shd1 /dev/shd2 /dev/shd3
mkfs.ext4 -q -E nodiscard $md
mkdir -p /tmp/array
mount $md /tmp/array

shingle-phase fill
# Half of the array, in one file, which the load overwrites.
blocks=$(($(stat -f -c %b /tmp/array) * $(stat -f -c %S /tmp/array) / 2 >> 20))
fallocate -l "${blocks}M" /tmp/array/file
dd if=/dev/zero of=/tmp/array/file bs=1M count="$blocks" conv=notrunc status=none
sync

mdadm --quiet $md --fail /dev/shd3 --remove /dev/shd3
shingle-phase rebuild
mdadm --quiet $md --add /dev/shd4
if [ "$load" = load ]; then
	python3 -I /tmp/overwrite.py /tmp/array/file /tmp/stop >/tmp/load.txt &
fi
began=$(cut -d ' ' -f 1 /proc/uptime)
# The kernel's thread begins a little later.
sleep 5
while grep -q -e recovery -e resync /proc/mdstat; do
	sleep 1
done
ended=$(cut -d ' ' -f 1 /proc/uptime)
touch /tmp/stop
wait
said=rebuilt
grep -q '\[UUUU\]' /proc/mdstat || said='lost a disk'
resets=$(cat /sys/block/shd[0-4]/shingle/counters | sed 's/.*"resets":\([0-9]*\).*/\1/' | tr '\n' ' ')
echo "$said after $(echo "$began $ended" | awk '{ printf "%.0f", $2 - $1 }') s, resets $resets"
[ "$load" = idle ] || cat /tmp/load.txt
umount /tmp/array
mdadm --quiet --stop $md
