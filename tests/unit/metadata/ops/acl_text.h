// SPDX-License-Identifier: Apache-2.0
// ACLs of tests as people write them: "u::rwx u:1000:r-x g::r-x m::rwx o::---" to the bytes of the attribute.
#pragma once
#include <sstream>

#include "metadata/ops/acl.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds::test {

inline Bytes acl_bytes(const std::string& text) {
  Bytes out = {2, 0, 0, 0};
  std::istringstream in(text);
  auto add = [&](uint64_t v, int n) {
    for (int i = 0; i < n; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
  };
  for (std::string word; in >> word;) {
    auto first = word.find(':'), second = word.find(':', first + 1);
    std::string id = word.substr(first + 1, second - first - 1), perms = word.substr(second + 1);
    uint16_t tag = word[0] == 'u' ? (id.empty() ? kAclUserObj : kAclUser) : word[0] == 'g' ? (id.empty() ? kAclGroupObj : kAclGroup) : word[0] == 'm' ? kAclMask : kAclOther;
    uint16_t perm = (perms[0] == 'r') * 4 + (perms[1] == 'w') * 2 + (perms[2] == 'x');
    add(tag, 2);
    add(perm, 2);
    add(id.empty() ? UINT32_MAX : std::stoul(id), 4);
  }
  return out;
}

}  // namespace nacre::mds::test
