#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Every way in which a machine can end: its status, its message, and that
# nothing is left, neither process nor file.
# usage: ends.sh LINUX GUEST SHINGLE-DRIVE
set -eu
. "$(dirname "$0")/common.sh"

# Its own copy, so that only processes of this test are counted, and its own
# place for guest memory, to see that nothing stays there.
cp "$LINUX" "$work/linux"
LINUX=$work/linux
memory=$(mktemp -d /dev/shm/shingle-test-XXXXXX)
trap 'rm -rf "$work" "$memory"' EXIT
export TMPDIR="$memory"
out=$work/out
new_drive "$work/x.drive"

left() {
	for exe in /proc/[0-9]*/exe; do
		[ "$(readlink "$exe" 2>/dev/null)" = "$LINUX" ] && echo "$exe"
	done
	ls -A "$memory"
}

# gone NAME: what was killed is gone within ten seconds; a busy host takes its time to collect it.
gone() {
	tries=0
	while [ -n "$(left)" ] && [ "$tries" -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	if [ -z "$(left)" ]; then ok "$1"; else not_ok "$1: left $(left)"; fi
}

# ends NAME STATUS TEXT JOB [arguments]
ends() {
	name=$1 expected=$2 text=$3 job=$4
	shift 4
	rm -rf "$out"
	mkdir "$out"
	echo "{\"steps\": [$job]}" >"$out/job.json"
	boot "$out" "$@"
	if [ "$status" != "$expected" ]; then
		not_ok "$name: status $status instead of $expected"
		tail -n 5 "$out/console"
	elif ! grep -q "$text" "$out/console"; then
		not_ok "$name: no \"$text\" on the console"
		tail -n 5 "$out/console"
	elif [ -n "$(left)" ]; then
		not_ok "$name: something is left: $(left)"
	else
		ok "$name"
	fi
}

sleeper='{"do": "sleep", "seconds": 1}'
writer='{"do": "exec", "argv": ["/bin/dd", "if=/dev/zero", "of=/dev/shd0", "bs=1M", "count=20", "oflag=direct"]}'
drive=shingle.drive=$work/x.drive

ends "a finished job" 0 "Power down" "$sleeper" "$drive"
ends "a machine without a drive" 0 "Power down" "$sleeper"
ends "a panic" 1 "Attempted to kill init" "$sleeper" "$drive" init=/bin/false
ends "a guest out of memory" 1 "Out of memory" \
	'{"do": "exec", "argv": ["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=1G", "count=1"]}' \
	"$drive" sysctl.vm.overcommit_memory=1
ends "a missing drive file" 2 "there is no such file" "$sleeper" \
	shingle.drive="$work/none"
ends "something else than a drive file" 2 "is refused" "$sleeper" \
	shingle.drive="$GUEST"
head -c 100 "$work/x.drive" >"$work/short.drive"
ends "a truncated drive file" 2 "is refused" "$sleeper" \
	shingle.drive="$work/short.drive"
ends "a directory as drive file" 2 "no regular file" "$sleeper" \
	shingle.drive="$work"
ends "a trace that cannot be written" 2 "trace" "$sleeper" "$drive" \
	shingle.trace="$work/none/trace"
ends "a power cut" 3 "power cut after request 5" "$writer" "$drive" \
	shingle.cut=5 shingle.save="$work/cut.drive"
"$TOOL" info "$work/cut.drive" >/dev/null || not_ok "the state after a power cut is no drive file"
ends "a power cut with nowhere to save" 4 "No such\|failed" "$writer" "$drive" \
	shingle.cut=5 shingle.save="$work/none/cut.drive"

# Killed from outside: nobody is left behind, stopped for ever.
killed() {
	rm -rf "$out"
	mkdir "$out"
	echo '{"steps": [{"do": "exec", "argv": ["/bin/sh", "-c", "cat /dev/zero | cat >/dev/null"]}]}' >"$out/job.json"
	# shellcheck disable=SC2016
	setsid "$@" sh -c 'exec "$0" "$@" </dev/null >/dev/null 2>&1' "$LINUX" \
		mem=256M root=/dev/root rootfstype=hostfs rootflags=/ ro \
		init="$GUEST" time-travel=inf-cpu shingle.out="$out" &
	sleep 2
}
killed
kill -KILL $!
gone "SIGKILL"

# The launcher asks for this; it has to survive the machine's own exec.
(
	killed setpriv --pdeathsig KILL
	kill -KILL "$(exec sh -c 'echo $PPID')"
) || true
gone "the launcher is killed"
exit "$failed"
