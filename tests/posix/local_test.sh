#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One of the tools of this folder on a local temporary directory: local_test.sh TOOL BINDIR. 77: not root, skipped.
set -u
tool=$1 bin=$2 here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || exit 77
dir=$(mktemp -d /tmp/nacre-posix.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
chmod 0755 "$dir"
case $tool in
  posix_suite) "$bin/posix_suite" --dir "$dir" ;;
  posix_selfcheck)  # every row of the wrong table must be reported
    rows=$(grep -c '^wrong' "$here/selfcheck/wrong.tbl")
    last=$("$bin/posix_suite" --dir "$dir" --tables "$here/selfcheck" | tail -n 1)
    [ "$last" = "0 passed, $rows failed" ] || { echo "expected all $rows rows to fail, got: $last"; exit 1; }
    if "$bin/fsx_model" --dirs "$dir" --ops 300 --seed 7 --break-at 150 >/dev/null; then echo "fsx_model did not see a byte changed behind its back"; exit 1; fi ;;
  fsx_model) "$bin/fsx_model" --dirs "$dir,$dir" --ops 3000 --seed 1 && "$bin/fsx_model" --dirs "$dir" --ops 2000 --seed 2 --maxlen 4194304 ;;
  dir_stress) "$bin/dir_stress" --dirs "$dir,$dir" --entries 5000 ;;
  lock_stress) "$bin/lock_stress" --dirs "$dir,$dir" --rounds 50 ;;
  *) echo "no such tool: $tool"; exit 2 ;;
esac
