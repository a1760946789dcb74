#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the drive as one relocatable object that can be linked into the machine's kernel.
# usage: build-object.sh OUT.o        CARGO and CARGO_TARGET_DIR are respected.
set -eu

out=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
header=$root/machine/arch/um/drivers/shingle_drive_abi.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# Its own folder: these flags would throw away what other builds of the workspace have.
# x86-64 and no more, so that floating point gives the same result everywhere; static, for UML is linked at a fixed address.
triple=x86_64-unknown-linux-gnu
# The folders of this host are in no name of a symbol, so that the same sources give the same object in each clone.
unset CARGO_ENCODED_RUSTFLAGS
RUSTFLAGS="-C target-cpu=x86-64 -C relocation-model=static -C force-frame-pointers=no \
	--remap-path-prefix=$root=/shingle --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
	"${CARGO:-cargo}" build --quiet --release --manifest-path "$root/Cargo.toml" \
	--target "$triple" --target-dir "$target/kernel" -p drive-abi --features kernel
archive=$target/kernel/$triple/release/libdrive_abi.a

# The header is the list of what the machine may call.
grep -o 'shingle_drive_[a-z_]*(' "$header" | tr -d '(' | sort -u >"$work/exported"

# -u and not --whole-archive, which would drag in rust_eh_personality.
# shellcheck disable=SC2046 # symbols have no spaces
ld -r -o "$work/drive.o" $(sed 's/^/-u /' "$work/exported") --gc-sections "$archive"
objcopy --strip-debug --keep-global-symbols="$work/exported" \
	--remove-section=.llvmbc --remove-section=.llvmcmd \
	--remove-section=.eh_frame --remove-section=.rela.eh_frame \
	--remove-section='.gcc_except_table*' --remove-section='.rela.gcc_except_table*' \
	"$work/drive.o"
# In a second step, for symbols that only the removed sections mentioned.
# shellcheck disable=SC2046
strip --strip-unneeded $(sed 's/^/--keep-symbol=/' "$work/exported") "$work/drive.o"

# Every symbol of the header must be there, and nothing be missing but these.
printf '%s\n' memcpy memmove memset memcmp bcmp shingle_host_alloc_chunk shingle_host_panic >"$work/allowed"
missing=$(nm --undefined-only --format=posix "$work/drive.o" | cut -d' ' -f1 | grep -vxFf "$work/allowed" || true)
if [ -n "$missing" ]; then
	echo "build-object.sh: the drive needs symbols that the machine does not have:" $missing >&2
	exit 1
fi
nm --defined-only --extern-only --format=posix "$work/drive.o" | cut -d' ' -f1 | sort >"$work/defined"
if ! cmp -s "$work/exported" "$work/defined"; then
	echo "build-object.sh: the header and the drive differ in their functions:" >&2
	diff "$work/exported" "$work/defined" >&2 || true
	exit 1
fi

# The kernel's stack has 16 KiB: no function may take a large part of it.
large=$(objdump -d --no-show-raw-insn "$work/drive.o" |
	awk '/^[0-9a-f]+ <.*>:$/ { f = $2 }
	     /sub +\$0x[0-9a-f]+,%rsp/ { n = $0; sub(/.*\$0x/, "", n); sub(/,.*/, "", n);
	                                if (length(n) > 3 || (length(n) == 3 && n >= "800")) print f, "0x" n }')
if [ -n "$large" ]; then
	echo "build-object.sh: frames of 2 KiB and more, too large for the kernel's stack:" >&2
	echo "$large" >&2
	exit 1
fi
cp "$work/drive.o" "$out"
