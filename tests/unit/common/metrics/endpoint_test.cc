// SPDX-License-Identifier: Apache-2.0
// Counting, and what a scrape of the endpoint answers.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/metrics/endpoint.h"

namespace nacre::metrics {
namespace {
using ::testing::HasSubstr;

const char* name_of(uint16_t m) { return m == 20 ? "Lookup" : "other"; }

TEST(Operations, AreCountedByHowLongTheyTook) {
  Operations ops;
  ops.note(20, 50 * kMicrosecond, false);
  ops.note(20, 5 * kMillisecond, true);
  ops.note(20, 1000 * kSecond, false);
  std::vector<Family> out;
  ops.add_to(out, {{"component", "mds"}}, name_of);
  ASSERT_EQ(out.size(), 2u);
  ASSERT_EQ(out[0].values.size(), 1u) << "only what was used";
  const Value& v = out[0].values[0];
  EXPECT_EQ(v.labels, (Labels{{"component", "mds"}, {"operation", "Lookup"}}));
  EXPECT_EQ(v.count, 3u);
  EXPECT_NEAR(v.value, 1000.00505, 1e-6);
  EXPECT_EQ(v.buckets.front(), (std::pair<double, uint64_t>(0.0001, 1)));
  EXPECT_EQ(v.buckets[2].second, 2u);
  EXPECT_EQ(v.buckets.back().second, 3u) << "+Inf has all";
  EXPECT_EQ(out[1].values[0].value, 1);
}

std::string scrape(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string out;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0) {
    const std::string q = "GET /metrics HTTP/1.0\r\n\r\n";
    (void)!::write(fd, q.data(), q.size());
    char b[4096];
    for (ssize_t n; (n = ::read(fd, b, sizeof b)) > 0;) out.append(b, static_cast<size_t>(n));
  }
  ::close(fd);
  return out;
}

TEST(Endpoint, AnswersAScrapeAndFindsAFreePort) {
  auto collect = [] { return std::vector<Family>{gauge("nacre_inodes", "Inodes.", {{"target", "mds"}}, 7)}; };
  auto first = Endpoint::open(0, 1, collect);
  if (!first && first.error().code == Errc::kOpNotSupp) GTEST_SKIP() << first.error().message();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_THAT(scrape((*first)->port()), HasSubstr("nacre_inodes{target=\"mds\"} 7"));
  EXPECT_EQ(Endpoint::open((*first)->port(), 1, collect).error().code, Errc::kInUse);
  auto second = Endpoint::open((*first)->port(), 16, collect);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_NE((*second)->port(), (*first)->port());
}

}  // namespace
}  // namespace nacre::metrics
