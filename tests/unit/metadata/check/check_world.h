// SPDX-License-Identifier: Apache-2.0
// What the tests of the check share: a server with two stand-in targets, a client that makes files, rows planted behind the server's
// back, and an administrator that asks page after page.
#pragma once
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "metadata/check/checker.h"
#include "tests/unit/metadata/ops/check_namespace.h"
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;
using check::Problem;

class CheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world.start_server();
    for (uint32_t i = 0; i < 2; ++i) osts.push_back(std::make_unique<StandInOst>(world, i, [this] { return world.mds(); }));
    ASSERT_TRUE(client.mount());
    ASSERT_TRUE(admin.connect(wire::kRoleAdmin));
  }

  // ---- making things
  Ino mkdir(std::string_view name, Ino parent = kRootIno) {
    wire::MknodRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    q.mode = S_IFDIR | 0755;
    auto made = client.once<rpc::Method::kMknod>(q);
    EXPECT_TRUE(made) << made.error().message();
    return Ino(made->attr->ino);
  }
  /// A closed file; with `size`, so many bytes on its first object.
  Ino file(std::string_view name, Ino parent = kRootIno, uint64_t size = 0) {
    auto made = client.create(name, ++handle, O_RDWR, parent);
    EXPECT_TRUE(made) << made.error().message();
    const Ino ino(made->attr->ino);
    std::vector<wire::ObjectReport> reports;
    if (size > 0) {
      const ObjectId object = object_of(ino);
      StandInOst& ost = *osts.at(made->layout->components[0]->osts[0]);
      ost.write(object, size);
      reports.push_back(ost.report(object));
    }
    auto closed = client.close(ino, handle, std::move(reports));
    EXPECT_TRUE(closed) << closed.error().message();
    return ino;
  }
  void link(Ino ino, std::string_view name, Ino parent = kRootIno) {
    wire::LinkRequestT q;
    q.ino = ino.v;
    q.new_parent = parent.v;
    q.new_name = as_bytes(name);
    auto made = client.once<rpc::Method::kLink>(q);
    EXPECT_TRUE(made) << made.error().message();
  }
  static ObjectId object_of(Ino ino, uint32_t generation = 1, uint16_t component = 0, uint16_t stripe = 0) { return {ino, Generation(generation), component, stripe}; }

  // ---- the store
  Store& store() { return *world.core().store; }
  View view() { return View(store(), Tier::kFull); }
  schema::InodeRecordT record(Ino ino) {
    auto r = view().inode(ino);
    EXPECT_TRUE(r && *r) << "inode " << ino.v;
    return r && *r ? std::move(**r) : schema::InodeRecordT();
  }
  uint32_t target_of(Ino ino) { return record(ino).layout->components[0]->osts[0]; }
  bool has(Family family, const std::string& key) { return view().get(family, key)->has_value(); }
  std::string entry_key(Ino parent, std::string_view name) { return dentry_key(parent, store().names()(name), name); }
  std::optional<schema::DentryRecordT> entry(Ino parent, std::string_view name) { return *view().dentry(parent, name); }
  void plant(const std::function<void(Batch&)>& fill) {
    Batch batch;
    fill(batch);
    auto done = world.core().journal->commit(std::move(batch));
    ASSERT_TRUE(done) << done.error().message();
  }
  void plant_inode(Ino ino, const std::function<void(schema::InodeRecordT&)>& change) {
    auto before = record(ino), after = before;
    change(after);
    plant([&](Batch& b) {
      b.put_inode(after);
      b.account(&before, &after);
    });
  }
  void plant_entry(Ino parent, std::string_view name, Ino ino, schema::FileType type) {
    schema::DentryRecordT d;
    d.ino = ino.v;
    d.type = type;
    plant([&](Batch& b) { b.put_record(Family::kDentry, entry_key(parent, name), d); });
  }

  // ---- the check
  std::vector<Problem> ask(uint8_t phase, bool repair = false, uint32_t ost = 0, uint64_t budget = 1000) {
    World::Hurry hurry(world);
    std::vector<Problem> out;
    wire::FsckRequestT q;
    q.phase = phase;
    q.ost = ost;
    q.budget = budget;
    q.repair = repair;
    for (int pages = 0; pages < 10'000; ++pages) {
      auto page = admin.call<rpc::Method::kFsck>(q);
      EXPECT_TRUE(page) << page.error().message();
      if (!page) break;
      for (auto& p : page->problems) out.push_back(std::move(*p));
      if (page->end) return out;
      q.cursor = page->cursor;
    }
    ADD_FAILURE() << "phase " << int{phase} << " does not end";
    return out;
  }
  std::vector<Problem> everything(bool repair = false, uint64_t budget = 1000) {
    std::vector<Problem> out;
    for (uint8_t phase : {check::kEntryRows, check::kInodes, check::kUsage}) std::ranges::move(ask(phase, repair, 0, budget), std::back_inserter(out));
    for (uint32_t ost = 0; ost < osts.size(); ++ost)
      for (uint8_t phase : {check::kStrays, check::kChecksums}) std::ranges::move(ask(phase, repair, ost, budget), std::back_inserter(out));
    return out;
  }
  static std::vector<std::string> kinds(const std::vector<Problem>& problems) {
    std::vector<std::string> out;
    for (const Problem& p : problems) out.push_back(fmt::format("{} {}", p.kind, p.ino));
    return out;
  }
  static std::string one(std::string_view kind, Ino ino) { return fmt::format("{} {}", kind, ino.v); }
  /// All told problems are repaired, and afterwards there are none, by two independent counts.
  void repairs(size_t told) {
    const auto found = everything(/*repair=*/true);
    EXPECT_EQ(found.size(), told) << ::testing::PrintToString(kinds(found));
    for (const Problem& p : found) EXPECT_TRUE(p.repaired) << p.kind << ": " << p.detail;
    EXPECT_THAT(kinds(everything()), IsEmpty());
    EXPECT_THAT(test::namespace_faults(store(), *world.core().journal), IsEmpty());
  }
  static std::string path(const Problem& p) { return std::string(as_text(p.path)); }

  World world;
  std::vector<std::unique_ptr<StandInOst>> osts;
  TestClient client{world}, admin{world};
  uint64_t handle = 0;
};

}  // namespace nacre::mds::testing
