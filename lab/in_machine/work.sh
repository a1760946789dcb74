#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What journal_lazy computes: directories are made, listed and removed on the file system with its log of 10 GiB, and
# three times on another with a log of 16 MiB, which wraps. Then each kind of work is told with how often it was done
# and its mean time on the host, in ns. Runs inside the machine, on the kernel that counts (e37):
#
#     ./shingle exec --drive wd40efax --drive wd40efax --capacity-gib 100 --fs ext4-lazy-counted \
#         --in lab/in_machine/work.sh -- sh work.sh
set -eu
told=/sys/module/jbd2/parameters/lazy_work small=/dev/shd1
if [ ! -e $told ] || [ ! -b $small ]; then
	echo "work.sh: $told or $small is missing; expected --fs ext4-lazy-counted and a second --drive" >&2
	exit 1
fi

load() {
	for top in $(seq 100); do
		mkdir "$top"
		(cd "$top" && seq 200 | xargs mkdir)
	done
	sync
	echo 3 >/proc/sys/vm/drop_caches
	ls -lR . >/dev/null
	rm -r ./[1-9]*
	sync
}

load
mke2fs -q -t ext4 -J size=16 -E nodiscard $small
mkdir /tmp/small
mount -o journal_lazy $small /tmp/small
cd /tmp/small
for _ in 1 2 3; do
	load
done
cd /
umount /tmp/small
awk '{ printf "%-8s %9d times %7.0f ns each\n", $1, $2, $2 ? $3 / $2 : 0 }' $told
