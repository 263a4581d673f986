#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rsync -aHAX and rclone, there and back without a difference: hard links, ACLs, extended attributes, sparse files, times.
#   real_rsync.sh MOUNT [SECOND_MOUNT] [--long]
set -euo pipefail
. "$(dirname "$0")/common.sh"
need rsync rclone setfacl setfattr getfacl
files=150
[ -z "$long" ] || files=20000
some_tree "$work/local" "$files"
(
  cd "$work/local/odd"
  setfacl -m u:20001:rwx,g:30001:r-x random; setfacl -d -m u:20002:rwx,g::r-x deep; setfacl -m u:20003:--- 'with blank'
  setfattr -n user.note -v hello random; setfattr -n user.note -v "$(printf 'x%.0s' {1..1500})" deep; setfattr -n trusted.mark -v t zero
)
check "rsync there" rsync -aHAX --modify-window=-1 --numeric-ids "$work/local/" "$dir/tree/"
same "no difference (rsync's own comparison, by checksum, other mount)" "$(rsync -aHAXnic --modify-window=-1 --numeric-ids --delete "$work/local/" "$dir2/tree/")" ""
manifest "$work/local" >"$work/m.local"; manifest "$dir2/tree" >"$work/m.mount"
check "no difference (types, modes, owners, times, links)" diff "$work/m.local" "$work/m.mount"
# In the order of names: each filesystem lists a directory in its own.
facls() {
  (
    cd "$1"
    find . ! -type l -print0 | LC_ALL=C sort -z >"$work/names"
    xargs -0 getfacl -np <"$work/names" 2>/dev/null
    xargs -0 getfattr -d -h -m '^(user|trusted|system)' <"$work/names" 2>/dev/null
  )
}
facls "$work/local/odd" >"$work/a.local"; facls "$dir2/tree/odd" >"$work/a.mount"
check "no difference (ACLs and attributes)" diff "$work/a.local" "$work/a.mount"

(cd "$dir2/tree" && rm -r usr/share && echo changed >odd/zero && mv odd/random odd/renamed && mkdir odd/new && : >odd/new/file && chmod 0600 odd/sparse && setfacl -b 'odd/with blank')
check "rsync repairs what was changed" rsync -aHAX --modify-window=-1 --numeric-ids --delete "$work/local/" "$dir/tree/"
same "no difference after the repair" "$(rsync -aHAXnic --modify-window=-1 --numeric-ids --delete "$work/local/" "$dir2/tree/")" ""
check "rsync back" rsync -aHAX --modify-window=-1 --numeric-ids "$dir2/tree/" "$work/back/"
same "no difference back here" "$(rsync -aHAXnic --modify-window=-1 --numeric-ids --delete "$work/local/" "$work/back/")" ""
check "rsync --sparse --inplace over existing files" rsync -aHAXS --modify-window=-1 --numeric-ids --ignore-times "$work/local/odd/" "$dir/tree/odd/"
check "rsync --inplace" rsync -aHAX --modify-window=-1 --numeric-ids --inplace --no-whole-file --ignore-times "$work/local/odd/random" "$dir/tree/odd/random"
same "still no difference" "$(rsync -aHAXnic --modify-window=-1 --numeric-ids "$work/local/" "$dir2/tree/")" ""

export RCLONE_CONFIG=$work/rclone.conf
: >"$RCLONE_CONFIG"
mkdir "$work/plain"
cp -a "$work/local/usr/include" "$work/plain/"
check "rclone sync there" rclone sync -q --links "$work/plain" "$dir/rclone"
check "rclone check" rclone check -q --links "$work/plain" "$dir2/rclone"
check "rclone check --download" rclone check -q --links --download "$dir2/rclone" "$work/plain"
first=$(cd "$dir2/rclone" && find . -type f -print -quit)
echo changed >>"$dir2/rclone/$first"
check "rclone check sees a changed file" sh -c "! rclone check -q --links '$work/plain' '$dir/rclone'"
check "rclone sync back" rclone sync -q --links "$dir/rclone" "$work/plain"
check "no difference" diff -r "$work/plain" "$dir2/rclone"
