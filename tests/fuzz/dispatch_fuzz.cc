// SPDX-License-Identifier: Apache-2.0
// Requests to the metadata server: any sequence of any bytes is answered, in bounded time, with a message that decodes or an
// error that isn't the server's own fault; the namespace stays whole, also on disk, and sessions leave nothing behind.
// `dispatch_fuzz write-seeds FOLDER` makes the seeds of the corpus anew; NACRE_TRACE=1 tells what a sequence does.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/log/log.h"
#include "tests/fuzz/dispatch_world.h"
#include "tests/fuzz/store_rows.h"
#include "tests/support/memory_dir.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

using namespace nacre;
using namespace nacre::mds::fuzz;

namespace {
namespace fs = std::filesystem;

/// The template and the one copy in use, open from one input to the next; removed at the end of the process.
struct Place {
  static constexpr int kMostInputs = 500;  ///< of one copy: what deletions leave behind makes it slow
  Place() : root(test::memory_dir() / fmt::format("nacre-fuzz-{}", ::getpid())), blank(root / "template"), copy(root / "copy") {
    fs::remove_all(root);
    fs::create_directories(root);
    World::make_template(blank);
  }
  ~Place() {
    store.reset();
    std::error_code ec;
    fs::remove_all(root, ec);
  }
  std::unique_ptr<mds::Store> take() {
    if (store && ++inputs < kMostInputs) {
      put_back(*store, rows);
      return std::move(store);
    }
    store.reset();
    inputs = 0;
    fs::remove_all(copy);
    fs::copy(blank, copy, fs::copy_options::recursive);
    auto opened = World::open_store(copy);
    rows = rows_of(*opened);
    return opened;
  }
  const fs::path root, blank, copy;
  std::unique_ptr<mds::Store> store;
  Rows rows;
  int inputs = 0;
};

/// Changes a number of the body in its place: FlatBuffers keep scalars aligned, so the message stays one.
void change_number(Bytes& body, std::minstd_rand& rng) {
  constexpr uint64_t kValues[] = {0, 1, 2, 3, 4, 255, 65'535, 1u << 31, UINT32_MAX, uint64_t{1} << 48, uint64_t{1} << 60, INT64_MAX, UINT64_MAX};
  if (body.size() < 8) return;
  const size_t width = size_t{1} << rng() % 4;
  const size_t at = rng() % (body.size() / width) * width;
  const uint64_t value = kValues[rng() % std::size(kValues)];
  std::memcpy(body.data() + at, &value, std::min(width, body.size() - at));
}

void mutate(Script& s, std::minstd_rand& rng) {
  const size_t n = s.steps.size();
  const size_t at = n ? rng() % n : 0;
  const uint32_t pick = n == 0 ? 0 : rng() % 16;
  if (pick < 5 && n < kMaxSteps) {
    s.steps.insert(s.steps.begin() + static_cast<ptrdiff_t>(rng() % (n + 1)), random_step(rng));
  } else if (pick < 8 && n) {
    s.steps[at] = random_step(rng);
  } else if (pick < 10 && n) {
    change_number(s.steps[at].body, rng);
  } else if (pick < 12 && n) {
    Bytes& b = s.steps[at].body;
    const size_t size = b.size();
    b.resize(size + 64);
    b.resize(LLVMFuzzerMutate(b.data(), size, b.size()));
  } else if (pick == 12 && n) {
    s.steps.erase(s.steps.begin() + static_cast<ptrdiff_t>(at));
  } else if (pick == 13 && n && n < kMaxSteps) {
    const Step again = s.steps[at];
    s.steps.insert(s.steps.begin() + static_cast<ptrdiff_t>(rng() % (n + 1)), again);
  } else if (pick == 14 && n) {
    std::swap(s.steps[at], s.steps[rng() % n]);
  } else if (n) {
    uint8_t* const fields[] = {&s.steps[at].who, &s.steps[at].flags, &s.steps[at].slot, &s.steps[at].sequence, &s.options};
    *fields[rng() % std::size(fields)] = static_cast<uint8_t>(rng() % (rng() % 8 ? 4 : 8));
    if (rng() % 32 == 0) s.options ^= kReopen;
  }
}

void write_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, script] : seeds()) {
    const Bytes bytes = print(script);
    std::ofstream(folder / ("seed-" + name), std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
}
}  // namespace

// Deep stacks of coroutines cost half the speed. Leaks are the unit tests' to find: here inputs would run twice for it, and
// RocksDB's threads leave 32 bytes of libc's at their end.
extern "C" const char* __asan_default_options() { return "malloc_context_size=10:detect_leaks=0"; }

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  log::set_level(log::Level::kError);
  if (*argc == 3 && std::string_view((*argv)[1]) == "write-seeds") {
    write_seeds((*argv)[2]);
    std::exit(0);
  }
  static std::string no_leaks = "-detect_leaks=0";
  static std::vector<char*> args(*argv, *argv + *argc);
  args.push_back(no_leaks.data());
  *argc = static_cast<int>(args.size());
  args.push_back(nullptr);
  *argv = args.data();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::minstd_rand rng(seed | 1);
  Script s = parse({data, size});
  for (uint32_t n = 1 + rng() % 3; n > 0; --n) mutate(s, rng);
  Bytes out = print(s);
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Place place;
  const Script script = parse({data, size});
  World world(place.copy, place.take());
  for (const Step& step : script.steps) world.play(step);
  if (script.options & kToTheEnd) world.check_end();
  else world.check();
  if (script.options & kReopen) world.check_disk();
  else place.store = world.take_store();
  return 0;
}
