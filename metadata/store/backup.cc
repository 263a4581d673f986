// SPDX-License-Identifier: Apache-2.0
// See backup.h.
#include "metadata/store/backup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <rocksdb/utilities/checkpoint.h>

#include "common/log/log.h"
#include "metadata/store/directory.h"
#include "metadata/store/rocks.h"

namespace nacre::mds {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxBackupPath = 3800;  ///< with the names of the files below it less than PATH_MAX
constexpr std::string_view kBackupFile = "backup";
constexpr std::string_view kArriving = "restoring";  ///< inside the metadata directory: the copy that isn't in its place yet

std::string utc(Nanos real, const char* format) {
  const std::time_t t = real / kSecond;
  std::tm tm{};
  ::gmtime_r(&t, &tm);
  char out[64];
  std::strftime(out, sizeof out, format, &tm);
  return out;
}

bool is_inside(const std::string& path, const std::string& directory) {
  std::error_code ec;
  const std::string p = fs::weakly_canonical(path, ec).string() + "/", d = fs::weakly_canonical(directory, ec).string() + "/";
  return p.starts_with(d);
}

Result<void> check_target(const Store::Options& o, const std::string& directory) {
  if (directory.empty() || directory.front() != '/') return Err(Errc::kInval, fmt::format("'{}' is no absolute path: name a directory on the metadata server's host", directory));
  if (directory.size() > kMaxBackupPath || directory.find('\0') != std::string::npos) return Err(Errc::kInval, "the backup's path is too long or holds a NUL");
  if (is_inside(directory, o.path)) return Err(Errc::kInval, fmt::format("{} lies inside the metadata directory {}: choose a place that survives its loss", directory, o.path));
  return {};
}

Result<BackupResult> fill(Journal& journal, const std::string& directory) {
  auto& rocks = journal.store().rocks();
  NACRE_CHECK_OK(journal.sync_now());
  BackupResult out;
  out.journal = journal.committed().v;
  rocksdb::Checkpoint* made = nullptr;
  auto s = rocksdb::Checkpoint::Create(rocks.db.get(), &made);
  std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  if (s.ok()) s = checkpoint->CreateCheckpoint(directory + "/" + std::string(kDatabaseDir));
  if (!s.ok()) return Err(to_error(s, "copying the metadata to " + directory));
  const std::string about = fmt::format("nacre metadata backup 1\ntaken {}\njournal {}\nincarnation {}\n", utc(rocks.options.clock->real(), "%Y-%m-%dT%H:%M:%SZ"), out.journal, journal.store().incarnation());
  NACRE_CHECK_OK(replace_file(directory + "/" + std::string(kBackupFile), about));
  NACRE_TRY(out.bytes, sync_tree(directory));
  NACRE_CHECK_OK(replace_file(directory + "/" + std::string(kIdentityFile), identity_text(rocks.options.cluster_id)));
  NACRE_CHECK_OK(sync_directory(fs::path(directory).parent_path()));
  return out;
}

Result<void> move_within(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return {};
  return Err(from_errno(errno), fmt::format("{} can't be moved to {}: {}", from, to, std::strerror(errno)));
}

/// Moves what is there aside. The identity goes first: a directory without one is refused by a server.
Result<std::string> keep_aside(const Store::Options& o) {
  std::error_code ec;
  bool any = false;
  for (auto name : {kIdentityFile, kDatabaseDir, kRestoredFile}) any |= fs::exists(o.path + "/" + std::string(name), ec);
  if (!any) return std::string();
  std::string kept = o.path + "/before-restore-" + utc(o.clock->real(), "%Y%m%dT%H%M%SZ");
  for (int i = 2; fs::exists(kept, ec); ++i) kept = fmt::format("{}/before-restore-{}-{}", o.path, utc(o.clock->real(), "%Y%m%dT%H%M%SZ"), i);
  if (::mkdir(kept.c_str(), 0700) != 0) return Err(from_errno(errno), fmt::format("{} can't be made: {}", kept, std::strerror(errno)));
  for (auto name : {kIdentityFile, kDatabaseDir, kRestoredFile}) NACRE_CHECK_OK(move_within(o.path + "/" + std::string(name), kept + "/" + std::string(name)));
  NACRE_CHECK_OK(sync_directory(kept));
  NACRE_CHECK_OK(sync_directory(o.path));
  return kept;
}

Result<std::string> about_backup(const Store::Options& o, const std::string& directory) {
  Store::Options there = o;
  there.path = directory;
  if (auto ours = check_identity(there); !ours) return Err(ours.error().code, fmt::format("{} is no whole backup of this cluster's metadata: {}", directory, ours.error().message()));
  std::ifstream in(directory + "/" + std::string(kBackupFile));
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || !text.str().starts_with("nacre metadata backup 1\n")) return Err(Errc::kNotOurs, fmt::format("{} was not made by 'nacre mds backup' (its file `{}` is missing or of another kind)", directory, kBackupFile));
  return text.str();
}

}  // namespace

Result<BackupResult> make_backup(Journal& journal, const std::string& directory) {
  NACRE_CHECK_OK(check_target(journal.store().rocks().options, directory));
  if (::mkdir(directory.c_str(), 0700) != 0) {
    const int e = errno;
    if (e == EEXIST) return Err(Errc::kExist, fmt::format("{} exists: a backup needs a directory of its own, name a new one", directory));
    return Err(from_errno(e), fmt::format("{} can't be made: {}", directory, std::strerror(e)));
  }
  auto done = fill(journal, directory);
  if (!done) {
    std::error_code ec;
    fs::remove_all(directory, ec);
    if (ec) log::error("what an unfinished backup left in {} can't be removed: {}", directory, ec.message());
  }
  return done;
}

Result<RestoreResult> restore_backup(const Store::Options& o, const std::string& directory) {
  RestoreResult out;
  NACRE_TRY(out.about, about_backup(o, directory));
  std::error_code ec;
  fs::create_directories(o.path, ec);
  fs::permissions(o.path, fs::perms::owner_all, ec);
  if (ec) return Err(Errc::kIo, fmt::format("{} can't be made: {}", o.path, ec.message()));
  NACRE_TRY(int lock, take_directory_lock(o.path));
  struct Unlock {
    int fd;
    ~Unlock() { ::close(fd); }
  } unlock{lock};
  const std::string arriving = o.path + "/" + std::string(kArriving), db = "/" + std::string(kDatabaseDir);
  fs::remove_all(arriving, ec);  // of a restore that was interrupted
  if (!ec) fs::create_directory(arriving, ec);
  if (!ec) fs::copy(directory + db, arriving + db, fs::copy_options::recursive, ec);
  if (ec) return Err(ec == std::errc::no_space_on_device ? Errc::kNoSpc : Errc::kIo, fmt::format("{} can't be copied to {}: {}; the metadata in {} is as it was", directory, arriving, ec.message(), o.path));
  NACRE_CHECK_OK(sync_tree(arriving));
  NACRE_TRY(out.kept, keep_aside(o));
  NACRE_CHECK_OK(replace_file(o.path + "/" + std::string(kRestoredFile), out.about));
  NACRE_CHECK_OK(move_within(arriving + db, o.path + db));
  NACRE_CHECK_OK(replace_file(o.path + "/" + std::string(kIdentityFile), identity_text(o.cluster_id)));
  fs::remove_all(arriving, ec);
  return out;
}

}  // namespace nacre::mds
