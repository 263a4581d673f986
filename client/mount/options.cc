// SPDX-License-Identifier: Apache-2.0
#include "client/mount/options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "common/config/settings_table.h"

namespace nacre::mount {
namespace {

using std::string_view;

/// For fstab and systemd, not for us; also what always holds here anyway.
constexpr string_view kIgnored[] = {"defaults", "_netdev", "auto", "noauto", "nofail", "user", "nouser", "users", "owner", "group", "relatime", "diratime", "nodiratime", "norelatime",
                                    "allow_other", "default_permissions", "loud", "nolazytime", "nostrictatime"};
/// Passed on to mount(2).
constexpr string_view kKernel[] = {"suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "dirsync"};
constexpr string_view kOurs[] = {"ro", "rw", "atime", "noatime", "subdir=", "soft=", "mask=", "key=", "cluster=", "log=", "readdirplus", "ring_depth=", "supervise="};
constexpr string_view kMaskable[] = {"mmap", "parallel", "epoch", "uring"};
constexpr uint32_t kMaxSoft = 24 * 3600;
constexpr uint32_t kMaxDepth = 64;

template <size_t N>
bool one_of(string_view s, const string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), s) != std::end(list);
}

std::unexpected<Error> wrong(std::string text) { return Err(Errc::kInval, std::move(text)); }

Result<uint32_t> number(string_view name, string_view text, uint32_t most) {
  uint32_t v = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() || v > most) return wrong(fmt::format("{}={}: write a number from 0 to {}", name, text, most));
  return v;
}

Result<void> unknown(string_view option) {
  std::vector<string_view> all;
  for (auto list : {std::span<const string_view>(kOurs), std::span<const string_view>(kKernel)}) all.insert(all.end(), list.begin(), list.end());
  const string_view name = option.substr(0, option.find('='));
  const string_view near = config::nearest(name, all);
  return wrong(fmt::format("the mount option '{}' is unknown{}", option, near.empty() ? "; mount.nacre --help lists all" : fmt::format(", did you mean '{}'?", near)));
}

/// Which of the options that have a value this is, and sets it. False if none.
Result<bool> value_option(Arguments& a, string_view o) {
  const size_t eq = o.find('=');
  if (eq == string_view::npos) return false;
  const string_view name = o.substr(0, eq), value = o.substr(eq + 1);
  const bool text = name == "subdir" || name == "mask" || name == "key" || name == "cluster" || name == "log";
  if (text && value.empty()) return wrong(fmt::format("{}= needs a value", name));
  if (name == "subdir") {
    if (value.front() != '/') return wrong(fmt::format("subdir={}: write it as a path that begins with '/'", value));
    a.subdir = value;
  } else if (name == "mask") {
    a.mask = value;
  } else if (name == "key") {
    a.key_file = value;
  } else if (name == "cluster") {
    a.cluster = value;
  } else if (name == "log") {
    a.log_file = value;
  } else if (name == "supervise") {
    if (value != "yes" && value != "no") return wrong(fmt::format("supervise={}: write yes or no", value));
    a.supervise = value == "yes";
  } else if (name == "soft") {
    NACRE_TRY(a.soft_seconds, number(name, value, kMaxSoft));
  } else if (name == "ring_depth") {
    NACRE_TRY(a.ring_depth, number(name, value, kMaxDepth));
  } else {
    return false;
  }
  return true;
}

Result<void> one_option(Arguments& a, string_view o) {
  if (o.empty() || one_of(o, kIgnored) || o.starts_with("x-") || o.starts_with("X-") || o.starts_with("comment=")) return {};
  if (o == "ro") return a.read_only = true, Result<void>{};
  if (o == "rw") return a.read_only = false, Result<void>{};
  if (o == "atime") return a.atime = true, Result<void>{};
  if (o == "noatime") return a.atime = false, Result<void>{};
  if (o == "readdirplus") return a.readdirplus = true, Result<void>{};
  if (one_of(o, kKernel)) return a.kernel_options.emplace_back(o), Result<void>{};
  if (o == "remount") return wrong("a mounted filesystem can't change its options: unmount it and mount it again");
  if (o == "strictatime") return wrong("strictatime is not offered: reading moves the access time once a day or after a change (relatime)");
  NACRE_TRY(bool known, value_option(a, o));
  if (known || a.sloppy) return {};
  return unknown(o);
}

Result<void> option_list(Arguments& a, string_view list) {
  bool in_mask = false;  // mask=mmap,parallel: what follows belongs to it as long as it names a feature
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const string_view o = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (in_mask && one_of(o, kMaskable)) {
      a.mask.append(",").append(o);
      continue;
    }
    in_mask = o.starts_with("mask=");
    NACRE_CHECK_OK(one_option(a, o));
  }
  return {};
}

/// HOST[:PORT][,…]:/[SUB], unless it can only be a path.
Result<void> source(Arguments& a) {
  const string_view s = a.source;
  if (s.starts_with('/') || s.starts_with('.') || s.find(":/") == string_view::npos) {
    if (a.cluster.empty()) a.cluster = s;
    return {};
  }
  string_view hosts = s.substr(0, s.find(":/"));
  const string_view sub = s.substr(hosts.size() + 1);
  while (!hosts.empty()) {
    const size_t end = std::min(hosts.find(','), hosts.size());
    if (end == 0) return wrong(fmt::format("'{}' has an empty host name; write HOST[:PORT][,HOST…]:/[SUBDIR]", s));
    a.hosts.emplace_back(hosts.substr(0, end));
    hosts.remove_prefix(std::min(end + 1, hosts.size()));
  }
  if (a.hosts.empty()) return wrong(fmt::format("'{}' names no host; write HOST[:PORT][,HOST…]:/[SUBDIR]", s));
  if (sub != "/") {
    if (!a.subdir.empty()) return wrong(fmt::format("the source '{}' and subdir={} both name a directory; keep one", s, a.subdir));
    a.subdir = sub;
  }
  return {};
}

Result<void> check_flags(Arguments& a, const std::string& letters) {
  for (char c : letters) {
    switch (c) {
      case 'f': a.foreground = true; break;
      case 'v': a.verbose = true; break;
      case 's': a.sloppy = true; break;
      case 'n': break;  // there is no /etc/mtab to write
      case 'r': a.read_only = true; break;
      case 'w': a.read_only = false; break;
      case 'h': a.help = true; break;
      default: return wrong(fmt::format("the flag -{} is unknown\n{}", c, usage()));
    }
  }
  return {};
}

}  // namespace

std::string usage() { return "usage: mount.nacre SOURCE MNT [-o OPTIONS] [-f] [-v] [-n] [-s]   (mount.nacre --help says more)\n"; }

std::string manual() {
  return
#include "mount_manual.inc"
      ;
}

Result<Arguments> parse_arguments(const std::vector<std::string>& argv, bool root) {
  Arguments a;
  std::vector<std::string> words, lists;
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string& w = argv[i];
    if (w == "--help") return a.help = true, a;
    if (w == "-N" || w == "--namespace") return wrong("mounting into another namespace is not offered: run mount.nacre in it (nsenter)");
    if (w == "-o" || w == "-t") {
      if (++i == argv.size()) return wrong(fmt::format("{} needs a value\n{}", w, usage()));
      if (w == "-o") lists.push_back(argv[i]);
    } else if (w.starts_with("-o")) {
      lists.push_back(w.substr(2));
    } else if (w.size() > 1 && w.front() == '-') {
      NACRE_CHECK_OK(check_flags(a, w.substr(1)));
    } else {
      words.push_back(w);
    }
  }
  if (a.help) return a;
  if (words.size() != 2) return wrong(fmt::format("a source and a mount point are needed\n{}", usage()));
  a.source = words[0];
  a.mount_point = words[1];
  a.supervise = !a.foreground;  // who keeps it in the foreground sees its end
  for (const auto& l : lists) NACRE_CHECK_OK(option_list(a, l));
  NACRE_CHECK_OK(source(a));
  // mount(8) keeps suid and dev to itself, and libfuse would turn both off.
  if (root) a.kernel_options.insert(a.kernel_options.begin(), {"suid", "dev"});
  if (a.read_only) a.kernel_options.emplace_back("ro");
  if (!a.atime) a.kernel_options.emplace_back("noatime");
  return a;
}

std::string port_of(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.find(']', colon) != std::string::npos) return {};
  if (address.find(':') != colon && address.front() != '[') return {};  // a bare IPv6 address
  return address.substr(colon + 1);
}

std::string with_port(const std::string& host, const std::string& default_port) {
  if (!port_of(host).empty() || default_port.empty()) return host;
  if (host.find(':') != std::string::npos && host.front() != '[') return fmt::format("[{}]:{}", host, default_port);
  return fmt::format("{}:{}", host, default_port);
}

}  // namespace nacre::mount
