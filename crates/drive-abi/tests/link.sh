#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Links the drive's object into a static program at a fixed address, as the machine does, and runs it.
# usage: link.sh DRIVE.o FILE.drive
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
"${CC:-cc}" -Wall -Wextra -Werror -O1 -static -no-pie -o "$work/link" "$here/link.c" "$1"
"$work/link" "$2"
