#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# stress.sh FOLDER BASE NAME SEED MIX FSX TURNS: in the machine, with the programs load and fsx in FOLDER, and fsx.toml,
# oracle.py and data_work.py beside this file: four threads that do MIX operations each below BASE/NAME, held against a
# model; two processes of FSX operations each on a file; TURNS turns of names, directories and synced files below
# BASE/NAME.names; and as many of overwriting blocks that say which they are, below BASE/NAME.blocks.
# Meanwhile the caches are dropped, and journal_lazy is told to move blocks home and to log them again, if it can be told,
# and to look through its log.
folder=$1 base=$2 name=$3 seed=$4 mix=$5 fsx=$6 turns=$7
own=${0%/*}
set -- /sys/fs/ext4*/*/journal_lazy
lazy=$1
echo $$ >/run/stress.pid

# A power cut takes what a program says, and its status, but not what is on the console.
complain() {
	echo "BUG: stress.sh: $1 of $name failed" >/dev/kmsg
	return 1
}

disturb() {
	round=0
	while :; do
		[ -e "$lazy/demote" ] && echo 300 >"$lazy/demote"
		sleep 0.4
		[ -e "$lazy/relog" ] && echo 150 >"$lazy/relog"
		sleep 0.4
		[ $((round % 50)) = 3 ] && [ -e "$lazy/scrub" ] && echo 1 >"$lazy/scrub"
		round=$((round + 1))
		echo 3 >/proc/sys/vm/drop_caches
	done
}

# fsx leaves what it maps for reading mapped, so each process does a part only.
exercise() {
	file=/mnt/$name.fsx$1
	left=$fsx seed=$((seed + $1))
	while [ "$left" -gt 0 ]; do
		count=$((left < 20000 ? left : 20000))
		"$folder/fsx" -f "$own/fsx.toml" -N "$count" -S "$seed" -P /run "$file" >"/run/$name.$1" 2>&1 || {
			echo "fsx -N $count -S $seed failed:"
			tail -n 20 "/run/$name.$1"
			return 1
		}
		left=$((left - count)) seed=$((seed + 2))
	done
	rm -f "$file" "/run/$name.$1"
}

# Buffered, mapped and direct writes, extents that are exchanged, blocks that are cut off or written again as they are.
overwrite() {
	export DATA_ROOT="$base/$name.blocks" DATA_NOTES="$base/$name.notes"
	work="/usr/bin/python3 -I $own/data_work.py"
	$work make 6 256 || return 1
	turn=0
	while [ "$turn" -lt "$turns" ]; do
		{ $work overwrite $((seed + turn)) 100 && $work beside 100 && $work cuts 20; } || return 1
		turn=$((turn + 1))
	done
	$work check
}

disturb &
disturber=$!
{ overwrite || complain blocks; } &
blocks=$!
{ exercise 1 || complain fsx; } &
one=$!
{ exercise 2 || complain fsx; } &
two=$!
{ /usr/bin/python3 -I "$own/oracle.py" churn "$base/$name.names" "$seed" "$turns" || complain names; } &
names=$!
"$folder/load" run mix --dir "$base" --set "path=\"$name\"" --set "seed=$seed" --set threads=4 --set "operations=$mix" \
	--set "verify_every=$mix" --set files_max=150 || complain mix
status=$?
wait $one || status=1
wait $two || status=1
wait $names || status=1
wait $blocks || status=1
kill $disturber
wait $disturber 2>/dev/null
exit $status
