#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fio writes with checksums in every block and verifies them: buffered, direct, mmap, io_uring and libaio, sequential and random,
# one file by several jobs; each file is verified again through the other mount.
#   real_fio.sh MOUNT [SECOND_MOUNT] [--long]     NO_MMAP=1 leaves out mmap (clients without MAP_SHARED on files open for writing)
set -euo pipefail
. "$(dirname "$0")/common.sh"
need fio
cd "$work"  # fio leaves files of its own where it runs
size=4M
[ -z "$long" ] || size=256M
# job NAME OPTIONS…: write and verify here, verify there
job() {
  local name=$1; shift
  local options=(--name="$name" --size=$size --verify=xxhash --verify_fatal=1 --randrepeat=1 --verify_state_save=0 --fallocate=none --thread --group_reporting "$@")
  if [[ " $* " = *mmap* ]] && [ -n "${NO_MMAP:-}" ]; then return; fi
  check "$name: write and verify" fio --output="$work/fio" --directory="$dir" --do_verify=1 --end_fsync=1 "${options[@]}"
  check "$name: verify through the other mount" fio --output="$work/fio" --directory="$dir2" --verify_only "${options[@]}"
  rm -f "$dir/$name".*
}
job buffered-seq --ioengine=psync --rw=write --bs=128k
job buffered-random --ioengine=psync --rw=randwrite --bs=4k
job buffered-odd --ioengine=psync --rw=randwrite --bs=13k --size=3900k
job buffered-mixed --ioengine=psync --rw=randrw --bs=16k --numjobs=2
job direct-seq --ioengine=psync --direct=1 --rw=write --bs=1M
job direct-random --ioengine=psync --direct=1 --rw=randwrite --bs=4k
job mmap-seq --ioengine=mmap --rw=write --bs=64k
job mmap-random --ioengine=mmap --rw=randwrite --bs=4k
job uring-buffered --ioengine=io_uring --iodepth=16 --rw=randwrite --bs=8k
job uring-direct --ioengine=io_uring --iodepth=16 --direct=1 --rw=randwrite --bs=4k --numjobs=2
job libaio-direct --ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bs=64k
job libaio-buffered --ioengine=libaio --iodepth=8 --rw=write --bs=256k
job vectors --ioengine=pvsync2 --rw=randwrite --bs=32k
job fsync-often --ioengine=psync --rw=write --bs=64k --fsync=16
# Four jobs write their own parts of one file, half of them through the other mount. The file is there before: fio, which lays out
# a file by removing and making it, would take it away from the jobs that had begun.
: >"$dir/shared"
for half in 0 1; do
  fio --output="$work/fio.$half" --name=shared --filename="$([ $half = 0 ] && echo "$dir" || echo "$dir2")/shared" --size=$size --offset=$((half * 2 * 256))M --offset_increment=256M \
    --numjobs=2 --thread --ioengine=psync --rw=randwrite --bs=4k --verify=xxhash --verify_fatal=1 --do_verify=1 --verify_state_save=0 --fallocate=none --create_on_open=1 --group_reporting & pids[half]=$!
done
for half in 0 1; do
  status=0; wait "${pids[$half]}" || status=$?
  check "one file from both sides, half $half" sh -c "[ $status = 0 ] || { head -20 '$work/fio.$half'; exit 1; }"
done
