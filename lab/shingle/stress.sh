#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# stress.sh FOLDER NAME SEED MIX FSX: in the machine, on /mnt, with the programs load and fsx in FOLDER and fsx.toml beside
# this file: four threads that do MIX operations each below /mnt/NAME, held against a model, and two processes of FSX
# operations each on a file.
# Meanwhile the caches are dropped, and journal_lazy is told to move blocks home and to log them again, if it can be told.
folder=$1 name=$2 seed=$3 mix=$4 fsx=$5
set -- /sys/fs/ext4*/*/journal_lazy
lazy=$1
echo $$ >/run/stress.pid

disturb() {
	while :; do
		[ -e "$lazy/demote" ] && echo 300 >"$lazy/demote"
		sleep 0.4
		[ -e "$lazy/relog" ] && echo 150 >"$lazy/relog"
		sleep 0.4
		echo 3 >/proc/sys/vm/drop_caches
	done
}

# fsx leaves what it maps for reading mapped, so each process does a part only.
exercise() {
	file=/mnt/$name.fsx$1
	left=$fsx own=$((seed + $1))
	while [ "$left" -gt 0 ]; do
		count=$((left < 20000 ? left : 20000))
		"$folder/fsx" -f "${0%/*}/fsx.toml" -N "$count" -S "$own" -P /run "$file" >"/run/$name.$1" 2>&1 || {
			echo "fsx -N $count -S $own failed:"
			tail -n 20 "/run/$name.$1"
			return 1
		}
		left=$((left - count)) own=$((own + 2))
	done
	rm -f "$file" "/run/$name.$1"
}

disturb &
disturber=$!
exercise 1 &
one=$!
exercise 2 &
two=$!
"$folder/load" run mix --dir /mnt --set "path=\"$name\"" --set "seed=$seed" --set threads=4 --set "operations=$mix" \
	--set "verify_every=$mix" --set files_max=150
status=$?
wait $one || status=1
wait $two || status=1
kill $disturber
wait $disturber 2>/dev/null
exit $status
