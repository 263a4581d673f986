#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# git on the mount: clone, work from both mounts, branches, merge, gc, fsck, clone back; every object as in a local repository.
#   real_git.sh MOUNT [SECOND_MOUNT] [--long]
set -euo pipefail
. "$(dirname "$0")/common.sh"
need git
export HOME=$work GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git config --global user.name tester; git config --global user.email tester@localhost
git config --global init.defaultBranch main; git config --global safe.directory '*'; git config --global gc.auto 0
files=150
[ -z "$long" ] || files=20000
some_tree "$work/src" "$files"
rm -f "$work/src/odd/fifo"
git -C "$work/src" init -q
for part in usr/include usr/share odd; do git -C "$work/src" add -A "$part"; git -C "$work/src" commit -qm "$part"; done
head=$(git -C "$work/src" rev-parse HEAD)

check "clone onto the mount" git clone -q --no-hardlinks "$work/src" "$dir/a"
same "status is clean" "$(git -C "$dir/a" status --porcelain)" ""
same "status is clean through the other mount" "$(git -C "$dir2/a" status --porcelain)" ""
same "the same commit" "$(git -C "$dir2/a" rev-parse HEAD)" "$head"
check "the files are the same" diff -r --no-dereference -x .git -x empty -x er -x closed -x setgid "$work/src" "$dir2/a"
check "fsck" git -C "$dir/a" fsck --full --strict

check "branch" git -C "$dir/a" checkout -q -b one
echo one >"$dir/a/one"
check "commit through the other mount" sh -c "git -C '$dir2/a' add -A && git -C '$dir2/a' commit -qm one"
check "back to main" git -C "$dir/a" checkout -q main
check "the file of the branch is gone" test ! -e "$dir2/a/one"
git -C "$dir2/a" checkout -q -b two
rm -r "$dir2/a/usr/share"; echo two >"$dir2/a/two"
check "commit a large removal" sh -c "git -C '$dir/a' add -A && git -C '$dir/a' commit -qm two"
check "merge" git -C "$dir2/a" merge -q -m merged one
same "status is clean after the merge" "$(git -C "$dir/a" status --porcelain)" ""
check "hard reset" git -C "$dir/a" reset -q --hard "$head"
check "the files are the same again" diff -r --no-dereference -x .git -x empty -x er -x closed -x setgid "$work/src" "$dir2/a"
check "gc" git -C "$dir/a" gc -q --prune=now
check "fsck after gc, through the other mount" git -C "$dir2/a" fsck --full --strict
check "repack" git -C "$dir2/a" repack -adfq --depth=10
check "fsck after repack" git -C "$dir/a" fsck --full --strict
check "clone on the mount with hard links" git clone -q "$dir/a" "$dir/b"
check "worktree" git -C "$dir/b" worktree add -q "$dir2/w" HEAD~1
check "clone back" git clone -q --no-hardlinks "$dir2/a" "$work/back"
same "the same commit came back" "$(git -C "$work/back" rev-parse HEAD)" "$head"
check "push into a bare repository on the mount" sh -c "git init -q --bare '$dir/bare' && git -C '$work/src' push -q '$dir2/bare' main"
same "it arrived" "$(git -C "$dir/bare" rev-parse main)" "$head"
