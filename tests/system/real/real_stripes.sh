#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A large file lies on the targets that `nacre stripe get` names, in equal parts, and on no other. Long: 5 GiB.
#   NACRE_CLUSTER=DIR real_stripes.sh MOUNT [SECOND_MOUNT] [--long]
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3
mib=96
[ -z "$long" ] || mib=5120
targets=$(nacre df --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["targets"]))')
used() { nacre df --json | python3 -c 'import json,sys; print(*(t["used"] for t in json.load(sys.stdin)["targets"]))'; }
named() { nacre stripe get --json "$1" | python3 -c '
import json,sys
print(*sorted(o["ost"] for f in json.load(sys.stdin)["files"] for c in f["components"] for o in c["objects"] if o["used"]))'; }
# settled BEFORE WANT…: the growth per target since BEFORE is WANT MiB each, within 5 % and 2 MiB (the targets report every few seconds)
settled() {
  python3 - "$1" "$(used)" "${@:2}" <<'PY'
import sys
before, now, want = [int(x) for x in sys.argv[1].split()], [int(x) for x in sys.argv[2].split()], [int(x) for x in sys.argv[3:]]
grown = [(n - b) / 2**20 for b, n in zip(before, now)]
print("grown by", [round(g, 1) for g in grown], "MiB, expected", want)
sys.exit(0 if all(abs(g - w) <= max(2, w * 0.05) for g, w in zip(grown, want)) else 1)
PY
}
write_data() { python3 - "$1" "$mib" <<'PY'
import os, random, sys
r = random.Random(1); f = os.open(sys.argv[1], os.O_WRONLY)
for i in range(int(sys.argv[2])): os.write(f, r.randbytes(1 << 16) * 16)
os.fsync(f); os.close(f)
PY
}
sum_of() { sha256sum <"$1"; }
expected=$(python3 - "$mib" <<'PY'
import hashlib, random, sys
r = random.Random(1); h = hashlib.sha256()
for i in range(int(sys.argv[1])): h.update(r.randbytes(1 << 16) * 16)
print(h.hexdigest(), " -")
PY
)
before=$(used)
check "a file over all targets" nacre stripe set -c -1 -S 1M "$dir/wide"
check "write it" write_data "$dir/wide"
same "its bytes through the other mount" "$(sum_of "$dir2/wide")" "$expected"
same "it names all targets" "$(named "$dir2/wide")" "$(seq -s ' ' 0 $((targets - 1)))"
mapfile -t even < <(for _ in $(seq "$targets"); do echo $((mib / targets)); done)
check "equal parts lie on all targets" until_true 20 settled "$before" "${even[@]}"
check "remove it" rm "$dir2/wide"
mapfile -t none < <(for _ in $(seq "$targets"); do echo 0; done)
check "the space comes back" until_true 60 settled "$before" "${none[@]}"

before=$(used)
check "a file on the last target alone" nacre stripe set -c 1 -i $((targets - 1)) "$dir/one"
check "write it" write_data "$dir/one"
same "its bytes through the other mount" "$(sum_of "$dir2/one")" "$expected"
same "it names that target" "$(named "$dir/one")" "$((targets - 1))"
only=("${none[@]}"); only[targets - 1]=$mib
check "all of it lies there" until_true 20 settled "$before" "${only[@]}"
