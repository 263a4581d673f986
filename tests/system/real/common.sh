# SPDX-License-Identifier: Apache-2.0
# Sourced by real_*.sh: arguments `MOUNT [SECOND_MOUNT] [--long]`, a directory of its own on the mount that goes away at the end.
#   $dir, $dir2   that directory through the first and the second mount      $work   local scratch      $long   1 for the long form
. "$(dirname "${BASH_SOURCE[0]}")/../../support/lib.sh"
long= mounts=()
for a in "$@"; do
  case $a in
  --long) long=1 ;;
  -*) echo "usage: $(basename "$0") MOUNT [SECOND_MOUNT] [--long]" >&2; exit 2 ;;
  *) mounts+=("$(realpath "$a")") ;;
  esac
done
[ ${#mounts[@]} -gt 0 ] || { echo "usage: $(basename "$0") MOUNT [SECOND_MOUNT] [--long]" >&2; exit 2; }
own=$(basename "$0" .sh).$$
mkdir "${mounts[0]}/$own"
undo "rm -rf '${mounts[0]}/$own'"
dir=${mounts[0]}/$own dir2=${mounts[1]:-${mounts[0]}}/$own
trap 'echo "FAIL: line $LINENO ended with $?: $BASH_COMMAND"' ERR  # with set -e: why a script ended early
# need PROGRAM…: a missing program is a failure, not a pass
need() { local p; for p in "$@"; do command -v "$p" >/dev/null || { echo "FAIL: $p is missing (tools/install-deps --tests installs it)"; exit 1; }; done; }
# manifest DIR: a line per object: type, mode, owner, group, size, mtime, link count, link target, name (sizes of directories differ by filesystem)
manifest() {
  (cd "$1" && find . \( -type d -printf '%y %m %U %G - %T@ - %l %P\n' \) -o \( -printf '%y %m %U %G %s %T@ %n %l %P\n' \)) | LC_ALL=C sort
}
# sums DIR: the bytes of every file
sums() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum); }
# some_tree DIR COUNT: about COUNT files of this system's headers and documents, with links, odd names, modes and owners among them
some_tree() {
  mkdir -p "$1"
  (cd / && find usr/include usr/share/doc -type f 2>/dev/null | LC_ALL=C sort | awk -v n="$2" '{l[NR]=$0} END {s=NR>n?NR/n:1; for(i=1;i<=NR;i+=s) print l[int(i)]}' | tar -cf - -T - 2>/dev/null) | tar -xf - -C "$1"
  (
    cd "$1"
    mkdir -p odd/empty odd/deep/er/and/er 'odd/with blank' odd/setgid odd/closed
    echo x >'odd/with blank/a b'; echo y >odd/$'new\nline'; echo z >odd/-rf; echo u >odd/ümläut
    ln -s ../usr odd/dirlink; ln -s none odd/dangling; ln -s "$(printf 'l%.0s' {1..200})" odd/long
    head -c 300000 /dev/urandom >odd/random; ln odd/random odd/deep/er/second; ln odd/random odd/third
    truncate -s 5M odd/sparse; printf end >>odd/sparse
    : >odd/zero; mkfifo odd/fifo
    chmod 4755 odd/zero; chmod 0400 odd/-rf; chmod 2775 odd/setgid; chown 20001:30001 odd/setgid odd/random; chown -h 7:8 odd/dangling; chmod 0700 odd/closed
    touch -d '1999-12-31 23:59:59.123456789' odd/random; touch -d '2040-01-01 00:00:00.5' odd/zero; touch -h -d @86400 odd/long
    touch -d '2001-01-01' odd/empty odd/deep
  )
}
