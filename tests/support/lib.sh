# SPDX-License-Identifier: Apache-2.0
# Sourced by system tests: counts, cleans up whatever happens, ends only what it started.
#   NACRE_BIN = folder of the programs (default: build/release/bin of this tree)
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${NACRE_BIN:-$top/build/release/bin}
PATH=$bin:$PATH
passed=0 failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/nacre-test.XXXXXX")
undo_steps=()
undo() { undo_steps=("$1" "${undo_steps[@]}"); }       # undo COMMAND: run at the end, last first
finish() {
  local status=$? s
  set +e
  cd /
  for s in "${undo_steps[@]}"; do eval "$s" >/dev/null 2>&1; done
  rm -rf --one-file-system "$work"
  [ "$status" = 0 ] || { [ "$failed" != 0 ] || failed=1; }
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ] || exit 1
}
trap finish EXIT
trap 'exit 130' INT TERM
# check WHAT COMMAND…: one assertion
check() {
  local what=$1 out; shift
  if out=$("$@" 2>&1); then passed=$((passed + 1)); else
    failed=$((failed + 1)); echo "FAIL $what: $*"; [ -z "$out" ] || printf '     %s\n' "${out:0:2000}"; fi
}
# same WHAT GOT WANT
same() { if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1: got '${2:0:500}', want '${3:0:500}'"; fi; }
# until_true SECONDS COMMAND…: polls for an event with a limit
until_true() {
  local limit=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $limit ] || return 1; read -rt 0.05 <> <(:) || :; done
}
# start_cluster DIR [init options]: makes and starts a cluster that is stopped at the end
start_cluster() {
  local dir=$1; shift
  nacre cluster init "$@" "$dir" >"$work/init.log" 2>&1 || { cat "$work/init.log"; return 1; }
  undo "nacre cluster stop '$dir' || kill -9 \$(awk '{print \$1}' '$dir'/run/*.pid)"
  nacre cluster start "$dir" >"$work/start.log" 2>&1 || { cat "$work/start.log"; return 1; }
}
# mount_cluster DIR MNT [options]
mount_cluster() {
  mkdir -p "$2"
  nacre mount ${3:+-o "$3"} "$1" "$2" || return 1
  undo "drop_mount '$2'"
}
# client_pid MNT: the process that serves a mount point
client_pid() {
  local p
  for p in $(pgrep -x mount.nacre); do
    if tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | grep -qxF -- "$1"; then echo "$p"; return 0; fi
  done
  return 1
}
# drop_mount MNT: unmounts; what still waits for a server that a failed test has left dead is aborted with its client
drop_mount() {
  local pid; pid=$(client_pid "$1")
  nacre umount "$1" || { nacre umount -l "$1"; [ -z "$pid" ] || kill -9 "$pid"; }
}
# end_jobs SECONDS PID…: waits for background jobs, then ends them
end_jobs() {
  local limit=$((SECONDS + $1)) p; shift
  for p; do
    while kill -0 "$p" 2>/dev/null && [ $SECONDS -lt $limit ]; do sleep 0.1; done
    kill -9 "$p" 2>/dev/null || :
  done
}
# pid_of DIR TARGET: the serving process, 0 if there is none
pid_of() { nacre cluster status --json "$1" | python3 -c 'import json,sys; print(next(s["pid"] for s in json.load(sys.stdin)["servers"] if s["target"]==sys.argv[1]))' "$2"; }
