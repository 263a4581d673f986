#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real tree is unpacked on the mount and compared with a local copy in bytes, mode, owner, mtime and links, through both mounts;
# copied, moved, read cold, removed. Long: 20,000 files and more (the kernel's sources if linux-source-6.1 is installed).
#   real_tree.sh MOUNT [SECOND_MOUNT] [--long]
set -euo pipefail
. "$(dirname "$0")/common.sh"
need tar sha256sum
files=600
[ -z "$long" ] || files=40000
some_tree "$work/local" "$files"
if [ -n "$long" ] && [ -f /usr/src/linux-source-6.1.tar.xz ]; then tar -xf /usr/src/linux-source-6.1.tar.xz -C "$work/local"; fi
[ -z "$long" ] || check "the tree has 20,000 files and more" test "$(find "$work/local" -type f | wc -l)" -ge 20000
echo "$(find "$work/local" -type f | wc -l) files, $(du -sm "$work/local" | cut -f1) MiB"
tar --format=posix --numeric-owner -cf "$work/tree.tar" -C "$work/local" .
manifest "$work/local" >"$work/m.local"
sums "$work/local" >"$work/s.local"

check "unpack" tar --numeric-owner -xpf "$work/tree.tar" -C "$dir"
for m in "$dir" "$dir2"; do
  manifest "$m" >"$work/m.mount"
  check "type, mode, owner, size, mtime and links are the same in $m" diff "$work/m.local" "$work/m.mount"
  sums "$m" >"$work/s.mount"
  check "bytes are the same in $m" cmp "$work/s.local" "$work/s.mount"
done
check "diff -r finds none" diff -r --no-dereference "$work/local/usr" "$dir2/usr"

check "pack it again" tar --format=posix --numeric-owner --sort=name -cf "$work/again.tar" -C "$dir2" .
mkdir "$work/again"
tar --numeric-owner -xpf "$work/again.tar" -C "$work/again"
manifest "$work/again" >"$work/m.again"
check "what was packed from the mount is the same tree" diff "$work/m.local" "$work/m.again"

check "move a directory" mv "$dir/usr" "$dir/moved"
check "its content followed" diff -r --no-dereference "$work/local/usr" "$dir2/moved"
check "copy with all attributes" cp -a "$dir2/odd" "$dir/copy"
manifest "$dir/copy" >"$work/m.copy"
manifest "$work/local/odd" >"$work/m.odd"
check "the copy has them" diff "$work/m.odd" "$work/m.copy"
check "hard links are one file" test "$(stat -c %i "$dir2/copy/random")" = "$(stat -c %i "$dir/copy/deep/er/second")"
check "remove a tree through the other mount" rm -rf "$dir2/moved" "$dir2/copy" "$dir2/odd"
same "nothing is left" "$(find "$dir" -mindepth 1 | grep -cvE '/linux-source' || true)" 0
