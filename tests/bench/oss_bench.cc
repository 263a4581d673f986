// SPDX-License-Identifier: Apache-2.0
// Measures one storage target through TCP: throughput of 1 MiB reads and writes, and 4 KiB operations per second, by connections
// and depth. Without --address it runs a target in a child process (the program nacre-oss beside this one) on a directory of its
// own, with a stand-in for the metadata server that only answers registrations and heartbeats.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/base/units.h"
#include "common/config/cluster.h"
#include "common/rpc/server.h"
#include "common/wire/bits.h"
#include "common/wire/checksum.h"

namespace nacre {
namespace {
using rpc::Method;

struct Arguments {
  std::string dir = "/tmp/nacre-oss-bench";
  std::string io = "buffered", oss;
  std::string size = "8GiB", data = "1GiB";
  double seconds = 3;
  size_t loops = 1;
  bool no_uring = false, check = true;
};

struct Run {
  const char* name;
  bool write;
  uint64_t size;
  size_t depth;
  bool random;
};
constexpr Run kRuns[] = {
    {"write 1M, depth 1", true, MiB, 1, false},    {"write 1M, depth 8", true, MiB, 8, false},     {"read 1M, depth 1", false, MiB, 1, false},
    {"read 1M, depth 8", false, MiB, 8, false},    {"write 4K, depth 1", true, 4 * KiB, 1, true},  {"write 4K, depth 32", true, 4 * KiB, 32, true},
    {"read 4K, depth 1", false, 4 * KiB, 1, true}, {"read 4K, depth 32", false, 4 * KiB, 32, true},
};

template <class T>
T wait_for(Runtime& runtime, size_t loop, Task<T> task) {
  std::promise<T> promise;
  runtime.loop(loop).spawn([](std::promise<T>& p, Task<T> t) -> Task<void> {
    T value = co_await std::move(t);  // the task is gone before anybody hears of its end
    p.set_value(std::move(value));
  }(promise, std::move(task)));
  return promise.get_future().get();
}

/// Answers what a target asks of the metadata server.
Task<rpc::Reply> stand_in(rpc::PeerPtr, rpc::Request request) {
  if (request.header.method == static_cast<uint16_t>(Method::kOstRegister)) {
    wire::OstRegisterReplyT r;
    r.time = system_clock().real();
    co_return rpc::ok(r);
  }
  wire::OstHeartbeatReplyT r;
  r.time = system_clock().real();
  r.known = true;
  co_return rpc::ok(r);
}

/// What all workers of one connection share.
struct Client {
  rpc::PeerPtr peer;
  wire::Key capability_key{};
  bool check = true;
  std::unique_ptr<wire::CapabilityT> capability(Ino ino) const {
    auto c = std::make_unique<wire::CapabilityT>();
    c->session = 1, c->ino = ino.v, c->generation = 1, c->components = 1, c->mode = 3, c->fileset = 1, c->epoch = 1;
    c->expires = system_clock().real() / (30 * kSecond) * 30 * kSecond + 59 * kSecond;  // the same one for a while, as a client has it
    wire::sign(capability_key, *c);
    return c;
  }
};

struct Tally {
  uint64_t ops = 0, errors = 0;
  std::vector<uint32_t> micros;
};

Task<int> worker(std::shared_ptr<Client> c, Run r, uint64_t data, uint64_t seed, std::shared_ptr<Tally> tally, Nanos until) {
  const ObjectId object{Ino(1000 + seed % 4), Generation(1), 0, 0};
  const uint64_t places = data / 4 / r.size;
  Buffer buffer = Buffer::allocate(r.size);
  for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = static_cast<std::byte>(seed + i / 7);
  Clock& clock = Loop::current()->clock();
  auto cap = c->capability(object.ino);
  uint64_t x = seed * 7919 + 1, next = seed * places / 32;
  for (uint64_t n = 0; clock.boot() < until; ++n) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t at = (r.random ? (x >> 33) : next++) % places * r.size;
    const Nanos start = clock.boot();
    bool good = false;
    if (r.write) {
      wire::ObjectWriteRequestT q;
      q.object = std::make_unique<schema::ObjectRef>(to_ref(object));
      q.offset = at, q.length = static_cast<uint32_t>(r.size), q.write_id = (seed << 40) + n + 1 + static_cast<uint64_t>(start);
      q.sums = wire::range_sums(object, at, buffer.span());
      q.cap = std::make_unique<wire::CapabilityT>(*cap);
      auto reply = co_await rpc::call<Method::kObjectWrite>(c->peer, std::move(q), {.payload = buffer});
      good = reply.has_value();
      if (!good && tally->errors == 0) fmt::print(stderr, "write: {}\n", reply.error().message());
    } else {
      wire::ObjectReadRequestT q;
      q.object = std::make_unique<schema::ObjectRef>(to_ref(object));
      q.offset = at, q.length = static_cast<uint32_t>(r.size);
      q.cap = std::make_unique<wire::CapabilityT>(*cap);
      auto reply = co_await c->peer->call(Method::kObjectRead, encode(q), {.receive_into = buffer});
      good = reply.has_value();
      if (good && c->check) {
        auto body = decode<wire::ObjectReadReplyT>(reply->body);
        good = body && body->sums == wire::range_sums(object, at, reply->payload.span());
        // A block without data has sum 0, which no block of bytes has.
        if (!good && body) good = std::all_of(body->sums.begin(), body->sums.end(), [](uint32_t s) { return s == 0; });
      }
      if (!good && tally->errors == 0) fmt::print(stderr, "read: {}\n", reply ? "sums don't match" : reply.error().message());
    }
    tally->errors += !good;
    ++tally->ops;
    tally->micros.push_back(static_cast<uint32_t>((clock.boot() - start) / kMicrosecond));
  }
  co_return 0;
}

Task<int> measure(std::shared_ptr<Client> c, Run r, Arguments a, uint64_t data, uint64_t first_seed, std::shared_ptr<Tally> tally) {
  std::vector<Task<int>> tasks;
  const Nanos until = Loop::current()->clock().boot() + static_cast<Nanos>(a.seconds * kSecond);
  for (size_t i = 0; i < r.depth; ++i) tasks.push_back(worker(c, r, data, first_seed + i, tally, until));
  co_await when_all(std::move(tasks));
  co_return 0;
}

/// User and system CPU seconds of another process so far.
double cpu_of(pid_t pid) {
  std::ifstream f(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(f)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string skip;
  for (int i = 3; i < 14; ++i) rest >> skip;
  double user = 0, sys = 0;
  rest >> user >> sys;
  return (user + sys) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

void report(const Run& r, const std::vector<std::shared_ptr<Tally>>& tallies, double seconds, double cpu) {
  Tally all;
  for (const auto& t : tallies) {
    all.ops += t->ops, all.errors += t->errors;
    all.micros.insert(all.micros.end(), t->micros.begin(), t->micros.end());
  }
  std::sort(all.micros.begin(), all.micros.end());
  auto at = [&](double q) { return all.micros.empty() ? 0 : all.micros[static_cast<size_t>(q * static_cast<double>(all.micros.size() - 1))]; };
  const double rate = static_cast<double>(all.ops) / seconds;
  fmt::print("{:20} {:9.0f} /s {:8.0f} MiB/s   p50 {:6} us  p99 {:6} us   target CPU {:6.1f} us/op{}\n", r.name, rate, rate * static_cast<double>(r.size) / MiB, at(0.5), at(0.99),
             all.ops ? cpu * 1e6 / static_cast<double>(all.ops) : 0, all.errors ? fmt::format("   {} ERRORS", all.errors) : "");
}

pid_t spawn(std::vector<std::string> argv) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::vector<char*> args;
  for (auto& x : argv) args.push_back(x.data());
  args.push_back(nullptr);
  ::execv(args[0], args.data());
  ::_exit(127);
}

/// Cluster file, key and formatted target below a.dir.
config::Cluster make_cluster(const Arguments& a, const std::string& mds_address) {
  config::Cluster c;
  c.name = "bench", c.key_file = "key", c.run_dir = "run";
  c.id.fill(7);
  c.mds.push_back({"localhost", mds_address, "mds"});
  const uint16_t port = static_cast<uint16_t>(20000 + ::getpid() % 20000);
  c.osts.push_back({0, "localhost", fmt::format("127.0.0.1:{}", port), "ost0", {}, parse_size(a.size).value()});
  c.settings.oss_io = a.io;
  c.settings.oss_uring = !a.no_uring;
  c.settings.rpc_loops = a.loops;
  std::filesystem::remove_all(a.dir);
  std::filesystem::create_directories(a.dir);
  std::ofstream(a.dir + "/key") << std::string(64, 'a') << "\n";
  ::chmod((a.dir + "/key").c_str(), 0400);
  std::ofstream(a.dir + "/cluster.toml") << config::dump_cluster(c);
  return config::load_cluster(a.dir + "/cluster.toml").value();
}

int run(const Arguments& a) {
  Runtime runtime({.loops = a.loops, .name = "bench"});
  runtime.start();
  auto transport = rpc::tcp_transport(runtime);
  wire::Key key{};
  key.fill(0xaa);
  std::array<uint8_t, 16> id{};
  id.fill(7);
  auto mds = rpc::serve(runtime, *transport, {.address = "127.0.0.1:0", .cluster_id = id, .key = key, .incarnation = 1}, stand_in);
  if (!mds) return fmt::print(stderr, "{}\n", mds.error().message()), 1;
  const config::Cluster cluster = make_cluster(a, (*mds)->address());
  const std::string program = a.oss.empty() ? (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nacre-oss").string() : a.oss;
  int status = 0;
  ::waitpid(spawn({program, "--cluster", cluster.file, "--ost", "0", "--format"}), &status, 0);
  const pid_t pid = spawn({program, "--cluster", cluster.file, "--ost", "0", "--log", a.dir + "/oss.log"});

  std::vector<std::shared_ptr<Client>> clients;
  for (size_t i = 0; i < a.loops; ++i) {
    auto c = std::make_shared<Client>();
    c->capability_key = wire::capability_key(key);
    c->check = a.check;
    for (int tries = 0; !c->peer && tries < 500; ++tries) {
      auto peer = wait_for(runtime, i, rpc::connect(*transport, {.address = cluster.osts[0].address, .cluster_id = id, .key = key, .role = wire::kRoleClient, .host = "bench"}, nullptr));
      if (peer) c->peer = *peer;
      else ::usleep(20'000);
    }
    if (!c->peer) return fmt::print(stderr, "the target does not answer; see {}/oss.log\n", a.dir), 1;
    clients.push_back(c);
  }
  for (;;) {
    auto s = wait_for(runtime, 0, rpc::call<Method::kOssStatus>(clients[0]->peer, {}));
    if (s && s->serving) {
      fmt::print("target pid {}, {}, {} loops; {} connections\n", pid, s->io, a.loops, clients.size());
      break;
    }
    ::usleep(20'000);
  }
  std::fflush(stdout);
  const uint64_t data = parse_size(a.data).value();
  for (const Run& r : kRuns) {
    std::vector<std::shared_ptr<Tally>> tallies;
    std::vector<std::future<int>> ends;
    std::vector<std::promise<int>> promises(clients.size());
    const double cpu = cpu_of(pid);
    const Nanos start = system_clock().boot();
    for (size_t i = 0; i < clients.size(); ++i) {
      tallies.push_back(std::make_shared<Tally>());
      ends.push_back(promises[i].get_future());
      runtime.loop(i).spawn([](std::promise<int>& p, Task<int> t) -> Task<void> {
    int value = co_await std::move(t);  // the task is gone before anybody hears of its end
    p.set_value(std::move(value));
  }(promises[i], measure(clients[i], r, a, data, i * r.depth, tallies[i])));
    }
    for (auto& e : ends) e.get();
    report(r, tallies, static_cast<double>(system_clock().boot() - start) / kSecond, cpu_of(pid) - cpu);
    std::fflush(stdout);
  }
  clients.clear();
  ::kill(pid, SIGTERM);
  ::waitpid(pid, &status, 0);
  (*mds)->stop();
  runtime.stop();
  std::filesystem::remove_all(a.dir);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
}  // namespace
}  // namespace nacre

int main(int argc, char** argv) {
  CLI::App app{"Measures one storage target through TCP."};
  nacre::Arguments a;
  app.add_option("--dir", a.dir, "Directory of the target; emptied before and removed afterwards");
  app.add_option("--io", a.io, "buffered or direct");
  app.add_flag("--no-uring", a.no_uring, "pread and pwrite on workers");
  app.add_option("--size", a.size, "Capacity of the target");
  app.add_option("--data", a.data, "Bytes that the runs work on");
  app.add_option("--seconds", a.seconds, "Of each run");
  app.add_option("--loops", a.loops, "Loops of the target and connections of the client");
  app.add_flag("!--no-check", a.check, "Don't verify sums of reads");
  app.add_option("--program", a.oss, "nacre-oss to run");
  CLI11_PARSE(app, argc, argv);
  return nacre::run(a);
}
