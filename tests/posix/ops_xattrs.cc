// SPDX-License-Identifier: Apache-2.0
// Extended attributes and POSIX ACLs. ACLs are written and read in their xattr form (linux/posix_acl_xattr.h), as
// libacl does, and shown in a short text: "u::rw-,u:20002:r--,g::r--,m::rw-,o::---".
#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tests/posix/context.h"

namespace nacre::posix {
namespace {

constexpr size_t kLongestValue = 128 << 10;  // twice the kernel's limit, so that a longer answer is seen

// setx PATH NAME VALUE [create|replace]
Outcome op_setx(Context& context, const Words& words) {
  int flags = words.size() < 4 ? 0 : words[3] == "create" ? XATTR_CREATE : XATTR_REPLACE;
  return plain(setxattr(context.path(words[0]).c_str(), words[1].c_str(), words[2].data(), words[2].size(), flags));
}

Outcome op_lsetx(Context& context, const Words& words) {
  return plain(lsetxattr(context.path(words[0]).c_str(), words[1].c_str(), words[2].data(), words[2].size(), 0));
}

Outcome op_fsetx(Context& context, const Words& words) {
  return plain(fsetxattr(context.descriptor(words[0]), words[1].c_str(), words[2].data(), words[2].size(), 0));
}

// getx PATH NAME [SIZE] -> value; SIZE is the room offered, 0 asks for the length
Outcome op_getx(Context& context, const Words& words) {
  auto room = words.size() > 2 ? static_cast<size_t>(number(words[2])) : kLongestValue;
  std::string value(room, '\0');
  auto n = getxattr(context.path(words[0]).c_str(), words[1].c_str(), value.data(), room);
  if (n < 0) return failed();
  if (room == 0) return read_value(std::to_string(n));
  value.resize(static_cast<size_t>(n));
  return read_value(value);
}

Outcome op_lgetx(Context& context, const Words& words) {
  std::string value(kLongestValue, '\0');
  auto n = lgetxattr(context.path(words[0]).c_str(), words[1].c_str(), value.data(), value.size());
  if (n < 0) return failed();
  value.resize(static_cast<size_t>(n));
  return read_value(value);
}

Outcome op_fgetx(Context& context, const Words& words) {
  std::string value(kLongestValue, '\0');
  auto n = fgetxattr(context.descriptor(words[0]), words[1].c_str(), value.data(), value.size());
  if (n < 0) return failed();
  value.resize(static_cast<size_t>(n));
  return read_value(value);
}

Outcome op_rmx(Context& context, const Words& words) { return plain(removexattr(context.path(words[0]).c_str(), words[1].c_str())); }

// listx PATH -> the names, sorted (security.* apart from ours belongs to the system and is left out)
Outcome op_listx(Context& context, const Words& words) {
  std::string names(kLongestValue, '\0');
  auto n = listxattr(context.path(words[0]).c_str(), names.data(), names.size());
  if (n < 0) return failed();
  std::vector<std::string> list;
  for (ssize_t at = 0; at < n;) {
    std::string name(names.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (name != "security.selinux") list.push_back(std::move(name));
  }
  std::sort(list.begin(), list.end());
  Outcome outcome;
  for (const auto& name : list) outcome.value += (outcome.value.empty() ? "" : " ") + name;
  return outcome;
}

const char* acl_name(const std::string& kind) { return kind == "default" ? "system.posix_acl_default" : "system.posix_acl_access"; }

uint16_t tag_of(char letter, bool named) {
  switch (letter) {
    case 'u': return named ? ACL_USER : ACL_USER_OBJ;
    case 'g': return named ? ACL_GROUP : ACL_GROUP_OBJ;
    case 'm': return ACL_MASK;
    case 'o': return ACL_OTHER;
    default: throw TableError(std::string("no ACL entry of kind ") + letter);
  }
}

std::string encode_acl(const std::string& text) {
  std::string out(sizeof(posix_acl_xattr_header), '\0');
  posix_acl_xattr_header header{htole32(POSIX_ACL_XATTR_VERSION)};
  std::memcpy(out.data(), &header, sizeof header);
  for (size_t begin = 0; begin < text.size();) {
    auto end = std::min(text.find(',', begin), text.size());
    auto item = text.substr(begin, end - begin);
    auto first = item.find(':'), second = item.find(':', first + 1);
    if (first != 1 || second == std::string::npos) throw TableError("no ACL entry: " + item);
    auto id = item.substr(2, second - 2);
    auto permissions = item.substr(second + 1);
    uint16_t bits = 0;
    if (permissions.find('r') != std::string::npos) bits |= ACL_READ;
    if (permissions.find('w') != std::string::npos) bits |= ACL_WRITE;
    if (permissions.find('x') != std::string::npos) bits |= ACL_EXECUTE;
    posix_acl_xattr_entry entry{htole16(tag_of(item[0], !id.empty())), htole16(bits), htole32(id.empty() ? ACL_UNDEFINED_ID : static_cast<uint32_t>(number(id)))};
    out.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    begin = end + 1;
  }
  return out;
}

std::string decode_acl(const std::string& value) {
  std::string out;
  for (size_t at = sizeof(posix_acl_xattr_header); at + sizeof(posix_acl_xattr_entry) <= value.size(); at += sizeof(posix_acl_xattr_entry)) {
    posix_acl_xattr_entry entry;
    std::memcpy(&entry, value.data() + at, sizeof entry);
    auto tag = le16toh(entry.e_tag), bits = le16toh(entry.e_perm);
    auto id = tag == ACL_USER || tag == ACL_GROUP ? std::to_string(le32toh(entry.e_id)) : std::string();
    char letter = tag == ACL_USER_OBJ || tag == ACL_USER ? 'u' : tag == ACL_GROUP_OBJ || tag == ACL_GROUP ? 'g' : tag == ACL_MASK ? 'm' : 'o';
    out += fmt::format("{}{}:{}:{}{}{}", out.empty() ? "" : ",", letter, id, bits & ACL_READ ? 'r' : '-', bits & ACL_WRITE ? 'w' : '-', bits & ACL_EXECUTE ? 'x' : '-');
  }
  return out;
}

// acl PATH access|default ENTRIES
Outcome op_acl(Context& context, const Words& words) {
  auto value = encode_acl(words[2]);
  return plain(setxattr(context.path(words[0]).c_str(), acl_name(words[1]), value.data(), value.size(), 0));
}

Outcome op_getacl(Context& context, const Words& words) {
  std::string value(kLongestValue, '\0');
  auto n = getxattr(context.path(words[0]).c_str(), acl_name(words[1]), value.data(), value.size());
  if (n < 0) return failed();
  value.resize(static_cast<size_t>(n));
  return read_value(decode_acl(value));
}

Outcome op_rmacl(Context& context, const Words& words) { return plain(removexattr(context.path(words[0]).c_str(), acl_name(words[1]))); }

constexpr Op kXattrsOps[] = {
    {"setx", 3, 4, false, op_setx}, {"lsetx", 3, 3, false, op_lsetx}, {"fsetx", 3, 3, false, op_fsetx}, {"getx", 2, 3, true, op_getx},
    {"lgetx", 2, 2, true, op_lgetx}, {"fgetx", 2, 2, false, op_fgetx}, {"rmx", 2, 2, false, op_rmx},     {"listx", 1, 1, true, op_listx},
    {"acl", 3, 3, false, op_acl},   {"getacl", 2, 2, true, op_getacl}, {"rmacl", 2, 2, false, op_rmacl},
};

}  // namespace

std::span<const Op> xattr_ops() { return kXattrsOps; }

}  // namespace nacre::posix
