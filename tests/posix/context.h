// SPDX-License-Identifier: Apache-2.0
// What a running row owns: its directory as seen through both mounts, named descriptors and remembered values.
// Operations return an Outcome and never throw for what the filesystem answers; a slip in a table (unknown
// descriptor, malformed number) throws TableError, which fails the row with its text. One thread.
#pragma once
#include <cerrno>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

#include "tests/posix/table.h"

namespace nacre::posix {

struct TableError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Outcome {
  int error = 0;      ///< errno of the failed call, 0 for success
  std::string value;  ///< what was read; empty for plain success
};

inline Outcome failed() { return {errno, {}}; }
inline Outcome plain(long rc) { return rc < 0 ? failed() : Outcome{}; }
inline Outcome read_value(std::string value) { return {0, std::move(value)}; }

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

/// root, alice, bob, carol, or "uid:gid[:group,group…]".
Identity identity_of(const std::string& who);

/// Acts as `who` until it is destroyed. The saved uid stays 0 so that the way back is open; the kernel judges by the others.
class ActAs {
 public:
  explicit ActAs(const std::string& who);
  ~ActAs();
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;

 private:
  bool active_;
};

class Context {
 public:
  Context(std::string first, std::string second) : first_(std::move(first)), second_(std::move(second)) {}
  ~Context() { close_all(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// "2:x" → x through the second mount, "1:x" → absolute through the first, else as it is (relative to the row's directory).
  std::string path(const std::string& word) const;
  int descriptor(const std::string& name) const;
  void keep_descriptor(const std::string& name, int fd);
  int forget_descriptor(const std::string& name);
  void close_all();

  const std::string& first() const { return first_; }
  const std::string& second() const { return second_; }
  void look_through_second(bool on) { through_second_ = on; }

  std::map<std::string, std::string> saved;  ///< values kept by `save`

 private:
  std::string first_, second_;
  bool through_second_ = false;
  std::map<std::string, int> descriptors_;
};

struct Op {
  const char* name;
  size_t min_words, max_words;  ///< arguments without the name
  bool looks;                   ///< only reads and takes a path first: repeated through the second mount
  Outcome (*run)(Context&, const Words&);  ///< words[0] is the first argument
};

std::span<const Op> name_ops();
std::span<const Op> attribute_ops();
std::span<const Op> data_ops();
std::span<const Op> xattr_ops();
std::span<const Op> process_ops();

// Helpers shared by the operations.
long long number(const std::string& word);                 ///< decimal, 0octal, 0xhex; K M G suffixes
int flags_of(const std::string& word);                     ///< "O_RDWR,O_CREAT" or "O_RDWR+O_CREAT" → flags
std::string error_name(int error);                         ///< "ENOENT"
std::string compact(const std::string& value);             ///< printable form, long runs shortened
std::string field_of(const struct stat& st, const std::string& field);
bool read_all(int fd, std::string& out);                   ///< false with errno set

}  // namespace nacre::posix
