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

# migrate FILE TIER: there are no tiers yet, so the data only goes to other objects
migrate() { nacre migrate "$1" >/dev/null; }

# drain OST
drain() { nacre ost drain --cluster "$NACRE_FIELD_CLUSTER" "$1" >/dev/null; }

# fsck_run [--repair]: the problems by their paths below client 1's mount; the last line is their number
fsck_run() { nacre fsck "$@" --cluster "$NACRE_FIELD_CLUSTER" "$M" | sed -E '$s/^([0-9]+) problems$/\1/'; }

# hurt FILE: flips bytes in the first of FILE's stored blocks of each of its targets, found by what they hold, while that target is stopped
hurt() {
  local target
  nacre sync "$1" || return
  for target in $(where "$1"); do
    nacre_flip "$1" "$target" "$(srv dir "$target")" || return
  done
}
nacre_flip() {  # FILE TARGET DIRECTORY
  local blocks; blocks=$(mktemp) || return
  cp "$1" "$blocks"
  srv stop "$2"
  python3 - "$blocks" "$3/blocks" <<'P'
import os, sys
BLOCK = 4096
data = open(sys.argv[1], "rb").read()
wanted = {data[i:i + BLOCK].ljust(BLOCK, b"\0") for i in range(0, len(data), BLOCK)} - {bytes(BLOCK)}
fd = os.open(sys.argv[2], os.O_RDWR)
end, at, hit = os.fstat(fd).st_size, 0, None
while at < end:
    try:
        at = os.lseek(fd, at, os.SEEK_DATA)
    except OSError:
        break
    stop = os.lseek(fd, at, os.SEEK_HOLE)
    for offset in range(at // BLOCK * BLOCK, stop, BLOCK):
        block = os.pread(fd, BLOCK, offset)
        if block in wanted and hit in (None, block):  # of one block all copies: which of them is in use only the index knows
            hit = block
            os.pwrite(fd, bytes(b ^ 0x55 for b in block[100:164]), offset + 100)
    at = stop
os.fsync(fd)
sys.exit(hit is None)
P
  local status=$?
  rm -f "$blocks"
  srv start "$2"
  return $status
}

nacre_at_rest() {  # SECONDS: until nothing is owed to the targets and df says the same for two heartbeats
  local limit=$((SECONDS + $1)) a b
  until nacre mds status --json --cluster "$NACRE_FIELD_CLUSTER" | grep -q '"owed_commands": 0,' && a=$(df -k --output=avail "$M") && sleep 2.2 && b=$(df -k --output=avail "$M") && [ "$a" = "$b" ]; do
    [ $SECONDS -lt $limit ] || return 0
  done
}

# Before every row: all servers and both clients up, all targets active. Cheap when all is well.
case_reset() {
  local o i
  nacre cluster status "$NACRE_FIELD_CLUSTER" >/dev/null 2>&1 || nacre cluster start "$NACRE_FIELD_CLUSTER"
  for i in 1 2; do nacre_alive "$(nacre_mount_of $i)" || cl up $i; done
  # Rows that measure free space begin when that of the rows before has come back (destroyed, then told by the next heartbeat).
  [[ ${CASE:-} != *'df -B'* ]] || nacre_at_rest 20
  local list; list=$(nacre ost list --json --cluster "$NACRE_FIELD_CLUSTER")
  [[ $list == *'"inactive"'* || $list == *'"draining"'* ]] || return 0
  for o in $(python3 -c '
import json, sys
print(*(t["target"] for t in json.load(sys.stdin)["targets"] if t["state"] in ("inactive", "draining")))' <<<"$list"); do
    nacre ost activate --cluster "$NACRE_FIELD_CLUSTER" "$o"
  done
}

export -f nacre_server_field nacre_mount_of nacre_client_pid nacre_gone nacre_dead nacre_alive cl srv where migrate drain fsck_run hurt nacre_flip nacre_at_rest case_reset
