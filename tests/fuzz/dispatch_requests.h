// SPDX-License-Identifier: Apache-2.0
// What the dispatch fuzzer plays: a sequence of steps, each a request of one of six callers or an event of the world around the
// server. On disk: one byte of options, then per step eight bytes (who, flags, method, slot, sequence, timeout, length of the
// body little-endian) and the body. Any bytes are some sequence; what a step asks for may be nonsense.
#pragma once
#include <random>
#include <span>
#include <vector>

#include "common/rpc/peer.h"

namespace nacre::mds::fuzz {

enum Who : uint8_t { kClientA, kClientB, kUser, kStranger, kTool, kStorage, kCallers };  ///< two of root's, uid 1000 (untrusted), no session

/// In the place of a method: not a request. kWriteObject: body as an ObjectReport. kKill, kStop: the server starts again, after
/// a kill or a clean stop; sessions reclaim at once unless the slot is odd. kHangUp: the caller's connection ends.
inline constexpr uint8_t kWriteObject = 200, kKill = 201, kStop = 202, kTargetsDown = 203, kTargetsUp = 204, kHangUp = 205, kNoSpace = 206;
/// Step.flags. kHold: the next step doesn't wait for the answer. kPause, kLongPause: 200 ms or 40 s pass afterwards. kForlorn:
/// a client without a session (any more) doesn't get one first.
inline constexpr uint8_t kHold = 1, kPause = 2, kLongPause = 4, kWrongSession = 8, kForlorn = 16;
/// Step.sequence: none, the slot's next, its last again; anything else is that number.
inline constexpr uint8_t kUnslotted = 0, kNext = 1, kRepeat = 2;
/// Script.options. kToTheEnd: all sessions are evicted and nothing may be left. kReopen: what lies on disk is checked too (slow).
inline constexpr uint8_t kToTheEnd = 1, kReopen = 64;

inline constexpr size_t kMaxSteps = 48;

/// Inode numbers of the tree in which each sequence starts: /d, /d/sub, /f (also /f2), /d/g, /l → f, /p (a fifo).
inline constexpr uint64_t kDir = 2, kSub = 3, kFile = 4, kOther = 5, kSymlink = 6, kFifo = 7;

struct Step {
  uint8_t who = 0, flags = 0, method = 0, slot = 0, sequence = 0, timeout = 0;  ///< timeout: 100 ms
  Bytes body;
};
struct Script {
  uint8_t options = 0;
  std::vector<Step> steps;
};

Script parse(std::span<const uint8_t> bytes);
Bytes print(const Script& script);

/// A step whose body is a valid message with values that mean something in the world.
Step random_step(std::minstd_rand& rng);
/// Each method once, and some stories.
std::vector<std::pair<std::string, Script>> seeds();

}  // namespace nacre::mds::fuzz
