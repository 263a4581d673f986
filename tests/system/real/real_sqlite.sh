#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SQLite with four writers: rollback journal from both mounts, WAL from one (its shared memory is shared by processes of one mount),
# each with integrity_check and every row accounted for; then a writer killed in a transaction.
#   real_sqlite.sh MOUNT [SECOND_MOUNT] [--long]
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 sqlite3
count=12
[ -z "$long" ] || count=400
cat >"$work/writer.py" <<'PY'
import sqlite3, sys
path, mode, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
c = sqlite3.connect(path, timeout=120, isolation_level=None)
if mode == "wal": assert c.execute("pragma journal_mode").fetchone()[0] == "wal"
for i in range(count):
    c.execute("begin immediate")
    total, = c.execute("select v from sum").fetchone()
    c.execute("insert into t values (?, ?, ?)", (who, i, "x" * (i * 37 % 3000)))
    c.execute("update sum set v = ?", (total + i,))
    if i % 10 == 9: c.execute("delete from t where who = ? and i < ?", (who, i - 8))
    c.execute("rollback" if i % 7 == 3 else "commit")
c.close()
PY
cat >"$work/expected.py" <<'PY'
import sys
writers, count = int(sys.argv[1]), int(sys.argv[2])
rows = set(); total = 0
for i in range(count):
    if i % 7 == 3: continue
    rows.add(i); total += i
    if i % 10 == 9: rows = {x for x in rows if x >= i - 8}
print(len(rows) * writers, total * writers)
PY
expected=$(python3 "$work/expected.py" 4 $count)
for mode in delete truncate persist wal; do
  db=$dir/$mode.db
  sqlite3 "$db" "pragma journal_mode=$mode; create table t(who, i, text, primary key(who, i)); create table sum(v); insert into sum values(0);" >/dev/null
  pids=()
  for w in 1 2 3 4; do
    place=$dir
    [ $mode = wal ] || [ $((w % 2)) = 0 ] || place=$dir2
    python3 "$work/writer.py" "$place/$mode.db" $mode $w $count >"$work/w.$w" 2>&1 & pids+=($!)
  done
  for i in 0 1 2 3; do
    status=0; wait "${pids[$i]}" || status=$?
    check "$mode: writer $((i + 1))" sh -c "[ $status = 0 ] || { tail -3 '$work/w.$((i + 1))'; exit 1; }"
  done
  same "$mode: integrity" "$(sqlite3 "$dir/$mode.db" 'pragma integrity_check')" ok
  same "$mode: all rows, no more" "$(sqlite3 -separator ' ' "$dir/$mode.db" 'select count(*), (select v from sum) from t')" "$expected"
  [ $mode = wal ] || same "$mode: the other mount sees the same" "$(sqlite3 -separator ' ' "$dir2/$mode.db" 'select count(*), (select v from sum) from t')" "$expected"
done
for mode in delete wal; do  # a writer dies inside a transaction: the next one rolls it back
  python3 - "$dir/$mode.db" <<'PY'
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("pragma cache_size=5")
c.execute("begin immediate"); c.execute("update sum set v = -1"); c.executemany("insert into t values (9, ?, ?)", ((i, "z" * 2000) for i in range(300)))
os._exit(0)
PY
  place=$dir2
  [ $mode = delete ] || place=$dir
  same "$mode: integrity after a writer's death" "$(sqlite3 "$place/$mode.db" 'pragma integrity_check')" ok
  same "$mode: its transaction is undone" "$(sqlite3 -separator ' ' "$place/$mode.db" 'select count(*), (select v from sum) from t')" "$expected"
done
