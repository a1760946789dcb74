# SPDX-License-Identifier: GPL-2.0-only
# Sourced by the tests of the machine. They want, as arguments or variables:
#	LINUX	the machine's kernel
#	GUEST	its first process
#	TOOL	shingle-drive
# shellcheck shell=sh

LINUX=${1:-${LINUX:?the machine\'s kernel}}
GUEST=${2:-${GUEST:?the first process of the guest}}
TOOL=${3:-${TOOL:?the shingle-drive program}}
profiles=$(cd "$(dirname "$0")/../../drives" && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0

ok() { echo "ok: $1"; }
not_ok() {
	echo "NOT OK: $1"
	failed=1
}

# new_drive FILE [BYTES]
new_drive() {
	"$TOOL" create --profile "$profiles/st8000as0002.toml" --seed 1 \
		--capacity-bytes "${2:-34359738368}" -o "$1" >/dev/null
}

# boot DIRECTORY [arguments]: runs DIRECTORY/job.json; the status is in $status.
# An argument that is given again wins, except for those of UML itself.
boot() {
	dir=$1
	shift
	status=0
	"$LINUX" mem=512M root=/dev/root rootfstype=hostfs rootflags=/ ro \
		init="$GUEST" norandmaps time-travel=inf-cpu \
		time-travel-start=1767225600000000000 sysctl.vm.panic_on_oom=1 \
		shingle.trace="$dir/trace" shingle.out="$dir" \
		vcpu.call_ns=2000 vcpu.name_ns=60000 "$@" \
		</dev/null >"$dir/console" 2>&1 || status=$?
}
