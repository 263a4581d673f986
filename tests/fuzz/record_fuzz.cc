// SPDX-License-Identifier: Apache-2.0
// What is stored: records, superblocks, the metadata server's keys, ACLs. Damaged bytes give kCorrupt or kVersion, never a crash;
// what decodes encodes again, what parses as a key is that key; layouts from damaged inodes stand the arithmetic of their use.
// The first byte of an input says as what the rest is taken. `record_fuzz write-seeds FOLDER` makes the seeds anew.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/units.h"
#include "common/layout/layout.h"
#include "common/schema/codec.h"
#include "metadata/ops/acl.h"
#include "metadata/store/keys.h"
#include "metadata/targets/layout_policy.h"

using namespace nacre;

namespace {
using mds::Family;

void must(bool what) {
  if (!what) std::abort();
}

void use_layout(const schema::LayoutT& layout) {
  (void)layout::validate(layout);
  (void)layout::used_objects(layout, Ino(7));
  (void)mds::component_bits(layout);
  for (const auto& c : layout.components) {
    (void)layout::file_end(*c, 1, UINT64_MAX);
    (void)layout::object_end(*c, 1, kMaxFileSize);
    (void)layout::object_range(*c, 0, UINT64_MAX, UINT64_MAX);
  }
  (void)layout::is_instantiated(layout, 4 * MiB, UINT64_MAX);
  schema::LayoutT grown(layout);
  (void)mds::instantiate(grown, 5 * MiB, 100 * MiB, [](const schema::ComponentT&) -> Result<std::vector<OstId>> { return std::vector{OstId(0), OstId(1)}; });
  if (layout::validate(layout)) (void)layout::split(layout, 1'000'001, 3 * MiB, kMaxIo);
}

template <class T>
void record(std::string_view value) {
  auto r = decode_record<T>(value);
  if (!r) return must(r.error().code == Errc::kCorrupt || r.error().code == Errc::kVersion);
  must(decode_record<T>(encode_record(*r)).has_value());
  if constexpr (requires { r->layout; })
    if (r->layout) use_layout(*r->layout);
}

/// A key that parses is what building it from its parts gives.
template <auto Parse, auto Build>
void key(std::string_view bytes) {
  if (auto k = Parse(bytes)) must(Build(*k) == bytes);
}

void prefix(std::string_view bytes) {
  const std::string end = mds::prefix_end(bytes);
  if (!end.empty()) must(std::string(bytes) < end && std::string(bytes) + "\xff\xff" < end);
}
void name_hash(std::string_view bytes) {
  const uint64_t h = mds::NameHash({1, 2, 3})(bytes);
  must(h >= mds::kFirstNameHash && h < uint64_t{1} << 63);
}
void acl(std::string_view bytes) {
  auto parsed = mds::Acl::parse(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  if (!parsed || !*parsed) return;
  mds::Acl& a = **parsed;
  auto again = mds::Acl::parse(a.serialize());
  must(again && *again && (*again)->entries() == a.entries());
  must(a.mode() <= 0777);
  a.set_mode(0640);
  must(a.mode() == 0640);
  must((a.inherit(0100444) & 0777) == 0440);
}

using namespace mds;
constexpr void (*kTargets[])(std::string_view) = {
#define NACRE_MESSAGE(name)
#define NACRE_RECORD(name) record<schema::name##T>,
#include "common/schema/types.def"
#undef NACRE_MESSAGE
#undef NACRE_RECORD
    key<parse_inode_key, inode_key>,
    key<parse_dentry_key, [](const DentryKey& k) { return dentry_key(k.parent, k.hash, k.name); }>,
    key<parse_link_key, [](const LinkKey& k) { return link_key(k.ino, k.parent, k.name); }>,
    key<parse_xattr_key, [](const XattrKey& k) { return xattr_key(k.ino, k.name); }>,
    key<parse_history_key, [](const HistoryKey& k) { return history_key(k.family, k.key, k.last); }>,
    key<parse_history_by_epoch_key, [](const HistoryByEpochKey& k) { return history_by_epoch_key(k.fileset, k.last, k.family, k.key); }>,
    key<parse_fileset_key, fileset_key>,
    key<parse_snapshot_key, [](const SnapshotKey& k) { return snapshot_key(k.fileset, k.epoch); }>,
    key<parse_usage_key, [](const UsageKey& k) { return usage_key(k.fileset, k.uid, k.gid); }>,
    key<parse_age_key, [](const AgeKey& k) { return age_key(k.fileset, k.day, k.ino); }>,
    key<parse_orphan_key, orphan_key>,
    key<parse_owed_key, [](const OwedKey& k) { return owed_key(k.ost, k.command); }>,
    key<parse_session_key, session_key>,
    key<parse_reply_key, [](const ReplyKey& k) { return reply_key(k.session, k.slot); }>,
    key<parse_open_key, [](const OpenKey& k) { return open_key(k.session, k.ino); }>,
    key<parse_changelog_key, changelog_key>,
    key<parse_ost_key, ost_key>,
    key<parse_quota_key, quota_key>,
    prefix,
    name_hash,
    acl,
};

/// Something in the parts of a record that vary in length.
void enrich(schema::InodeRecordT& r) {
  r.layout = std::make_unique<schema::LayoutT>();
  for (uint64_t start : {uint64_t{0}, 4 * MiB}) {
    auto c = std::make_unique<schema::ComponentT>();
    c->start = start;
    c->end = start == 0 ? 4 * MiB : 0;
    c->stripe_size = 64 * KiB;
    c->stripe_count = c->stripes_used = 2;
    c->instantiated = true;
    c->osts = {0, 1};
    r.layout->components.push_back(std::move(c));
  }
  r.truncate_intent = std::make_unique<schema::TruncateIntentT>();
  r.name = as_bytes("name");
  r.symlink = as_bytes("target");
}
void enrich(schema::XattrRecordT& r) { r.value = as_bytes("value"); }
void enrich(schema::FilesetRecordT& r) { r.tier = r.name = "scratch"; }
void enrich(schema::SessionRecordT& r) {
  r.client_uuid.assign(16, 1);
  r.host = r.mount = r.subdir = "/text";
}
void enrich(schema::ReplyRecordT& r) { r.body = as_bytes("body"); }
void enrich(schema::OstRecordT& r) {
  r.uuid.assign(16, 2);
  r.address = "host:1";
  r.pool = {"ssd", "fast"};
}
void enrich(schema::ChangelogRecordT& r) { r.name = r.new_name = as_bytes("name"); }
void enrich(schema::ChunkRecordT& r) {
  r.runs.assign(2, schema::Run());
  r.sums = {1, 2, 3};
}
void enrich(schema::UndoRecordT& r) { r.chunk = as_bytes("chunk"); }
void enrich(schema::EpochRecordT& r) { r.snapshots = {1, 2}; }
void enrich(schema::AllocatorRecordT& r) { r.free = {1, 2, 3, 4}; }
template <class T>
void enrich(T&) {}

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  uint8_t number = 0;
  auto write = [&](std::string_view name, std::string body) {
    std::ofstream out(folder / ("seed-" + std::string(name)), std::ios::binary);
    out << static_cast<char>(number++) << body;
  };
  auto rich = [](auto r) {
    enrich(r);
    return encode_record(r);
  };
#define NACRE_MESSAGE(name)
#define NACRE_RECORD(name) write(#name, rich(schema::name##T()));
#include "common/schema/types.def"
#undef NACRE_MESSAGE
#undef NACRE_RECORD
  for (; number < std::size(kTargets) - 1;) write(fmt::format("key-{}", number), std::string(16, '\1') + "name");
  const uint8_t plain[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255};
  write("acl", std::string(std::begin(plain), std::end(plain)));
}
}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string_view((*argv)[1]) != "write-seeds") return 0;
  write_seeds((*argv)[2]);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  kTargets[data[0] % std::size(kTargets)](std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
