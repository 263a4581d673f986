// SPDX-License-Identifier: Apache-2.0
// `nacre changelog register|read|clear|list|deregister`.
#include <charconv>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {

using ChangelogJson = nlohmann::ordered_json;
constexpr uint8_t kActionRegister = 1, kActionClear = 2, kActionDeregister = 3, kActionList = 4;
constexpr uint32_t kEntriesPerPage = 1000;

Result<std::unique_ptr<Connection>> changelog_server(const Common& common) {
  NACRE_TRY(auto cluster, load_named_cluster(common.cluster));
  return connect_mds(cluster);
}

Result<wire::ChangelogControlReplyT> control(Connection& mds, uint8_t action, uint32_t reader = 0, std::string name = {}, uint64_t sequence = 0) {
  wire::ChangelogControlRequestT q;
  q.action = action;
  q.reader = reader;
  q.name = std::move(name);
  q.sequence = sequence;
  return mds.call<rpc::Method::kChangelogControl>(q);
}

/// By number, or by the name it was registered with.
Result<uint32_t> reader_number(Connection& mds, const std::string& text) {
  uint32_t number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec == std::errc() && end == text.data() + text.size()) return number;
  NACRE_TRY(auto known, control(mds, kActionList));
  for (const auto& r : known.readers)
    if (r->name == text) return r->reader;
  return Err(Errc::kNoEnt, fmt::format("no changelog reader has the number or name {}: see 'nacre changelog list'", text));
}

const char* kind_name(uint16_t kind) {
  static constexpr const char* kNames[] = {"unknown", "create", "mkdir", "mknod", "symlink", "link", "unlink", "rmdir", "rename", "setattr", "xattr", "exchange", "restore"};
  return kNames[kind < std::size(kNames) ? kind : 0];
}

std::string text_of_name(const std::vector<uint8_t>& name) { return printable(std::string_view(reinterpret_cast<const char*>(name.data()), name.size())); }

void print_gap(bool json, uint64_t lost, uint64_t after) {
  if (json) fmt::print("{}\n", ChangelogJson({{"version", 1}, {"gap", lost}, {"after", after}}).dump());
  else fmt::print("# {} entries after {} are lost\n", lost, after);
}

void print_entry(bool json, const wire::ChangelogEntryT& e) {
  if (!json) {
    fmt::print("{} {} {} {} {}/{}", e.sequence, iso_time(e.time), kind_name(e.kind), e.ino, e.parent, text_of_name(e.name));
    if (e.new_parent) fmt::print(" {}/{}", e.new_parent, text_of_name(e.new_name));
    fmt::print("\n");
    return;
  }
  ChangelogJson out = {{"version", 1}, {"sequence", e.sequence}, {"time", static_cast<double>(e.time) / 1e9}, {"kind", kind_name(e.kind)}, {"ino", e.ino}, {"parent", e.parent}, {"name", text_of_name(e.name)}};
  if (e.new_parent) out["new_parent"] = e.new_parent, out["new_name"] = text_of_name(e.new_name);
  out["uid"] = e.uid;
  out["session"] = e.session;
  fmt::print("{}\n", out.dump());
}

}  // namespace

int changelog_register(const ChangelogArgs& o) {
  auto mds = changelog_server(o.common);
  if (!mds) return complain(mds.error());
  auto reply = control(**mds, kActionRegister, 0, o.name);
  if (!reply) return complain(reply.error());
  if (o.common.json) print_json({{"reader", reply->reader}, {"after", reply->last}});
  else fmt::print("reader {} begins after entry {}\n", reply->reader, reply->last);
  return kOk;
}

int changelog_read(const ChangelogArgs& o) {
  auto mds = changelog_server(o.common);
  if (!mds) return complain(mds.error());
  auto number = reader_number(**mds, o.reader);
  if (!number) return complain(number.error());
  wire::ChangelogReadRequestT q;
  q.reader = *number;
  q.after = o.after;
  bool gap = false;
  for (uint64_t left = o.limit ? o.limit : UINT64_MAX; left > 0;) {
    q.limit = static_cast<uint32_t>(std::min<uint64_t>(left, kEntriesPerPage));
    auto page = (*mds)->call<rpc::Method::kChangelogRead>(q);
    if (!page) return complain(page.error());
    if (page->entries.empty()) break;
    if (page->gap_before) print_gap(o.common.json, page->gap_before, page->entries.front()->sequence - page->gap_before - 1);
    gap |= page->gap_before != 0;
    for (const auto& e : page->entries) print_entry(o.common.json, *e);
    q.after = page->entries.back()->sequence;
    left -= std::min<uint64_t>(left, page->entries.size());
    if (page->end) break;
  }
  return gap ? kFound : kOk;
}

int changelog_clear(const ChangelogArgs& o) {
  auto mds = changelog_server(o.common);
  if (!mds) return complain(mds.error());
  auto number = reader_number(**mds, o.reader);
  if (!number) return complain(number.error());
  auto reply = control(**mds, kActionClear, *number, {}, o.sequence);
  return reply ? kOk : complain(reply.error());
}

int changelog_list(const ChangelogArgs& o) {
  auto mds = changelog_server(o.common);
  if (!mds) return complain(mds.error());
  auto reply = control(**mds, kActionList);
  if (!reply) return complain(reply.error());
  ChangelogJson list = ChangelogJson::array();
  Table table({"READER", "NAME", "CLEARED", "BEHIND", "SINCE"}, {0, 2, 3});
  for (const auto& r : reply->readers) {
    list.push_back({{"reader", r->reader}, {"name", r->name}, {"cleared", r->cleared}, {"behind", reply->last - std::min(r->cleared, reply->last)}, {"created", static_cast<double>(r->created) / 1e9}});
    table.row({std::to_string(r->reader), r->name.empty() ? "-" : printable(r->name), std::to_string(r->cleared), std::to_string(reply->last - std::min(r->cleared, reply->last)), iso_time(r->created)});
  }
  if (o.common.json) {
    print_json({{"first", reply->first}, {"last", reply->last}, {"readers", list}});
  } else {
    fmt::print("entries {} to {}\n", reply->first, reply->last);
    table.print();
  }
  return kOk;
}

int changelog_deregister(const ChangelogArgs& o) {
  auto mds = changelog_server(o.common);
  if (!mds) return complain(mds.error());
  auto number = reader_number(**mds, o.reader);
  if (!number) return complain(number.error());
  auto reply = control(**mds, kActionDeregister, *number);
  return reply ? kOk : complain(reply.error());
}

}  // namespace nacre::cli
