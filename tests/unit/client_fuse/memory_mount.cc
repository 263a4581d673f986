// SPDX-License-Identifier: Apache-2.0
// Mounts the filesystem in memory until it is unmounted: `memory_mount MNT [-o mask=…,readdirplus,loops=N,depth=N]`. For suites
// and benchmarks that want the front alone.
#include <cstdio>
#include <string>

#include "client/fuse/front.h"
#include "common/log/log.h"
#include "tests/unit/client_fuse/memory_fs.h"

int main(int argc, char** argv) {
  using namespace nacre;
  if (argc < 2) {
    std::fprintf(stderr, "usage: memory_mount MNT [mask=FEATURE:FEATURE] [readdirplus] [loops=N] [depth=N]\n");
    return 2;
  }
  log::open("memory_mount", "", log::Level::kInfo);
  fuse::FrontOptions o;
  o.source = "memory";
  o.mount_point = argv[1];
  o.kernel_options = {"dev", "suid"};
  RuntimeOptions r;
  for (int i = 2; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.starts_with("mask=")) {
      if (auto m = o.compat.mask(a.substr(5)); !m) return std::fprintf(stderr, "%s\n", m.error().message().c_str()), 2;
    } else if (a == "readdirplus") {
      o.readdirplus = true;
    } else if (a.starts_with("loops=")) {
      r.loops = std::stoul(a.substr(6));
    } else if (a.starts_with("depth=")) {
      o.ring_depth = static_cast<uint32_t>(std::stoul(a.substr(6)));
    }
  }
  Runtime runtime(r);
  runtime.start();
  test::MemoryFs fs(runtime);
  auto notifier = std::make_shared<fuse::Notifier>();
  auto front = fuse::Front::mount(runtime, fs, notifier, std::move(o));
  if (!front) return std::fprintf(stderr, "%s\n", front.error().message().c_str()), 1;
  if (auto w = (*front)->wait_ready(10 * kSecond); !w) return std::fprintf(stderr, "%s\n", w.error().message().c_str()), 1;
  std::fprintf(stderr, "%s\n", (*front)->status_json().c_str());
  const std::string why = (*front)->wait_ended();
  std::fprintf(stderr, "ended %s\n%s\n", why.c_str(), (*front)->status_json().c_str());
  (*front)->close();
  runtime.stop();
  return why.empty() ? 0 : 1;
}
