# SPDX-License-Identifier: Apache-2.0
# The verbs of prelude.sh as `nacre` commands, sourced by run-field's rows (bash, root). Needs in the environment:
#   M, N                 the two mount points (clients 1 and 2)
#   NACRE_FIELD_CLUSTER  directory of the single-node cluster with targets ost0 and ost1
#   NACRE_FIELD_OPTIONS  mount options of both clients, may be empty
# Clients are mounted with supervise=no unless the options say otherwise: `cl kill9` means a client that stays dead.
# A verb that Nacre can't do yet is absent: its rows are skipped and counted. All are exported: rows call them from child shells.

nacre_server_field() {  # TARGET FIELD: from `nacre cluster status --json`, nothing if there is none
  nacre cluster status --json "$NACRE_FIELD_CLUSTER" 2>/dev/null | python3 -c '
import json, sys
target, field = sys.argv[1:]
print(next((s[field] for s in json.load(sys.stdin)["servers"] if s["target"] == target), ""))' "$1" "$2"
}

nacre_mount_of() { case $1 in 1) echo "$M" ;; 2) echo "$N" ;; *) echo "no client $1" >&2; return 2 ;; esac; }

nacre_client_pid() {  # CLIENT: pid of the daemon that serves its mount point
  local mnt p; mnt=$(nacre_mount_of "$1") || return
  for p in $(pgrep -x mount.nacre); do
    tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | grep -qxF -- "$mnt" && { echo "$p"; return 0; }
  done
  return 1
}

nacre_gone() {  # PID SECONDS: waits until the process has ended
  local limit=$((SECONDS + $2))
  while [ -e "/proc/$1" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; do
    [ $SECONDS -lt $limit ] || return 1
    sleep 0.02
  done
}

nacre_dead() {  # MNT: waits until the kernel has noticed that its client is gone (requests in flight end with ECONNABORTED first)
  local limit=$((SECONDS + 10))
  until timeout 5 stat -t "$1/." 2>&1 >/dev/null | grep -q 'not connected'; do [ $SECONDS -lt $limit ] || return 1; sleep 0.02; done
}

nacre_alive() { timeout 10 stat -t "$1/." >/dev/null 2>&1 && mountpoint -q "$1"; }  # a client that answers

# cl up|down|kill9|fg|pid 1|2 [mount options]
cl() {
  local what=$1 mnt pid; mnt=$(nacre_mount_of "$2") || return
  local options=${3:-$NACRE_FIELD_OPTIONS}
  [[ ,$options == *,supervise=* ]] || options=supervise=no${options:+,$options}
  case $what in
  up) nacre mount ${options:+-o "$options"} "$NACRE_FIELD_CLUSTER" "$mnt" ;;
  fg) nacre mount -f ${options:+-o "$options"} "$NACRE_FIELD_CLUSTER" "$mnt" ;;
  down) nacre umount "$mnt" ;;
  kill9) pid=$(nacre_client_pid "$2") && kill -9 "$pid" && nacre_gone "$pid" 10 && nacre_dead "$mnt" ;;
  pid) nacre_client_pid "$2" ;;
  *) echo "cl $what?" >&2; return 2 ;;
  esac
}

# srv stop|start|kill9|restart|pause|dir ROLE [SECONDS]
srv() {
  local what=$1 target=$2 pid
  case $what in
  start) nacre cluster start "$NACRE_FIELD_CLUSTER" >/dev/null ;;  # starts what is down; a paused server is up
  stop) pid=$(nacre_server_field "$target" pid); [ "${pid:-0}" = 0 ] || { kill "$pid" && nacre_gone "$pid" 60; } ;;
  kill9) pid=$(nacre_server_field "$target" pid); [ "${pid:-0}" = 0 ] || { kill -9 "$pid" && nacre_gone "$pid" 10; } ;;
  restart) srv stop "$target" && srv start "$target" ;;
  pause) pid=$(nacre_server_field "$target" pid); [ "${pid:-0}" != 0 ] && kill -STOP "$pid" && sleep "$3"; kill -CONT "$pid" ;;
  dir) nacre_server_field "$target" directory ;;
  *) echo "srv $what?" >&2; return 2 ;;
  esac
}

# where FILE: the targets that hold its data
where() {
  nacre stripe get --json "$1" | python3 -c '
import json, sys
files = json.load(sys.stdin)["files"]
print(*sorted({o["target"] for f in files for c in f["components"] for o in c["objects"] if o["used"]}))'
}

# Before every row: all servers and both clients up, all targets active. Cheap when all is well.
case_reset() {
  local o i
  nacre cluster status "$NACRE_FIELD_CLUSTER" >/dev/null 2>&1 || nacre cluster start "$NACRE_FIELD_CLUSTER"
  for i in 1 2; do nacre_alive "$(nacre_mount_of $i)" || cl up $i; done
  local list; list=$(nacre ost list --json --cluster "$NACRE_FIELD_CLUSTER")
  [[ $list == *'"inactive"'* ]] || return 0
  for o in $(python3 -c '
import json, sys
print(*(t["target"] for t in json.load(sys.stdin)["targets"] if t["state"] == "inactive"))' <<<"$list"); do
    nacre ost activate --cluster "$NACRE_FIELD_CLUSTER" "$o"
  done
}

export -f nacre_server_field nacre_mount_of nacre_client_pid nacre_gone nacre_dead nacre_alive cl srv where case_reset
