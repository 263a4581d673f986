#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real C++ projects are configured and built on the mount with two jobs, run through the other mount, and found up to date after.
# Short: googletest without optimisation. Long: googletest with its own tests, and Nacre's POSIX suite.
#   real_build.sh MOUNT [SECOND_MOUNT] [--long]
set -euo pipefail
. "$(dirname "$0")/common.sh"
need cmake make
export CCACHE_DISABLE=1
source=/usr/src/googletest
[ -f $source/CMakeLists.txt ] || { echo "FAIL: $source is missing (package googletest)"; exit 1; }
check "copy the sources" cp -a $source "$dir/gt"
options=(-DCMAKE_CXX_FLAGS=-O0 -DBUILD_GMOCK=OFF)
[ -z "$long" ] || options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_GMOCK=ON -Dgtest_build_tests=ON -Dgmock_build_tests=ON)
check "configure" cmake -G 'Unix Makefiles' -S "$dir/gt" -B "$dir/build" "${options[@]}"
check "build with two jobs" make -C "$dir/build" -j2
again=$(make -C "$dir/build" 2>&1 || true)
same "a second make has nothing to build" "$(grep -c 'Building' <<<"$again")" 0
cat >"$dir/t.cc" <<'CC'
#include <gtest/gtest.h>
TEST(Mount, Works) { EXPECT_EQ(6 * 7, 42); }
CC
check "compile and link against it through the other mount" c++ -std=c++17 -O0 -I"$dir2/gt/googletest/include" "$dir2/t.cc" -L"$dir2/build/lib" -lgtest -lgtest_main -pthread -o "$dir2/t"
check "the program runs" "$dir/t"
touch "$dir2/gt/googletest/src/gtest_main.cc"
again=$(make -C "$dir/build" 2>&1 || true)
same "a touched source, and only what depends on it, is built again" "$(grep -c 'Building CXX object.*gtest_main' <<<"$again")/$(grep -c 'Building.*gtest-all' <<<"$again")" 1/0
if [ -n "$long" ]; then
  check "googletest's own tests pass" make -C "$dir/build" test
  need git ninja
  check "clone Nacre" git clone -q "$top" "$dir/nacre"
  check "configure Nacre" cmake -S "$dir/nacre" -B "$dir/nb" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19
  check "build Nacre's POSIX suite" ninja -C "$dir/nb" -j2 posix_suite
  check "it lists its rows" "$dir2/nb/bin/posix_suite" --list
  same "nothing left to do" "$(ninja -C "$dir/nb" posix_suite | grep -c 'no work to do')" 1
fi
