// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <unistd.h>

#include <thread>

#include "client/mount/control.h"
#include "client/mount/options.h"
#include "client/mount/point.h"
#include "client/mount/supervisor.h"

namespace nacre::mount {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;

Result<Arguments> parse(std::vector<std::string> words, bool root = true) { return parse_arguments(words, root); }

TEST(MountOptions, ClusterDirectory) {
  auto a = parse({"/srv/cluster", "/mnt"});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->cluster, "/srv/cluster");
  EXPECT_TRUE(a->hosts.empty());
  EXPECT_THAT(a->kernel_options, ElementsAre("suid", "dev"));
  EXPECT_FALSE(a->foreground);
}

TEST(MountOptions, HostsAndSubdirectory) {
  auto a = parse({"mds1:7700,10.0.0.2,[fe80::1]:7:/projects/a", "/mnt", "-o", "cluster=/etc/x.toml"});
  ASSERT_TRUE(a) << a.error().message();
  EXPECT_THAT(a->hosts, ElementsAre("mds1:7700", "10.0.0.2", "[fe80::1]:7"));
  EXPECT_EQ(a->subdir, "/projects/a");
  EXPECT_EQ(a->cluster, "/etc/x.toml");
  EXPECT_EQ(parse({"h:/", "/mnt"})->subdir, "");
  EXPECT_FALSE(parse({":/", "/mnt"}));
  EXPECT_FALSE(parse({"a,,b:/", "/mnt"}));
  EXPECT_FALSE(parse({"h:/x", "/mnt", "-o", "subdir=/y"}));
}

TEST(MountOptions, WhatFstabAndSystemdPassIsStripped) {
  auto a = parse({"/c", "/mnt", "-n", "-o", "rw,_netdev,x-systemd.requires=a.service,noauto,nofail,user,defaults,relatime,comment=hi"});
  ASSERT_TRUE(a) << a.error().message();
  EXPECT_THAT(a->kernel_options, ElementsAre("suid", "dev"));
}

TEST(MountOptions, KernelOptionsKeepTheirOrder) {
  auto a = parse({"/c", "/mnt", "-o", "ro,nosuid,nodev,noexec,noatime"});
  ASSERT_TRUE(a);
  EXPECT_THAT(a->kernel_options, ElementsAre("suid", "dev", "nosuid", "nodev", "noexec", "ro", "noatime")) << "the later one counts";
  EXPECT_TRUE(a->read_only);
  EXPECT_FALSE(a->atime);
  EXPECT_THAT(parse({"/c", "/mnt"}, false)->kernel_options, ElementsAre());
}

TEST(MountOptions, MaskTakesTheFeaturesThatFollow) {
  auto a = parse({"/c", "/mnt", "-o", "mask=mmap,parallel,epoch,uring,soft=30,ro"});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->mask, "mmap,parallel,epoch,uring");
  EXPECT_EQ(a->soft_seconds, 30u);
  EXPECT_TRUE(a->read_only);
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "mask=mmap,ro,parallel"})) << "the mask had ended";
}

TEST(MountOptions, SupervisedUnlessSomebodyWatches) {
  EXPECT_TRUE(parse({"/c", "/mnt"})->supervise);
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "supervise=no"})->supervise);
  EXPECT_FALSE(parse({"/c", "/mnt", "-f"})->supervise);
  EXPECT_TRUE(parse({"/c", "/mnt", "-f", "-o", "supervise=yes"})->supervise);
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "supervise=maybe"}));
}

TEST(MountSupervisor, BacksOff) {
  EXPECT_EQ(restart_pause(1), 0);
  EXPECT_EQ(restart_pause(2), 1 * kSecond);
  EXPECT_EQ(restart_pause(4), 4 * kSecond);
  EXPECT_EQ(restart_pause(1000), 60 * kSecond);
}

/// One question to a control socket of this process.
Result<std::string> ask(ControlSocket& socket, const std::string& device, uint32_t owner, ControlQuestion q) {
  ControlHandlers h{[] { return std::string("{\"x\":1}"); }, [] { return size_t{3}; }};
  std::thread server([&] {
    pollfd p{socket.fd(), POLLIN, 0};
    if (::poll(&p, 1, 5000) == 1) socket.answer(h);
  });
  auto answer = ask_client(device, owner, q);
  server.join();
  return answer;
}

TEST(MountControl, AnswersAndLooksAtWhoAsks) {
  const std::string device = "test:" + std::to_string(::getpid());
  EXPECT_EQ(ask_client(device, ::geteuid(), ControlQuestion::kStatus).error().code, Errc::kDisconnected);
  ControlSocket socket, second;
  ASSERT_TRUE(socket.open(device));
  EXPECT_FALSE(second.open(device));
  EXPECT_EQ(ask(socket, device, ::geteuid(), ControlQuestion::kStatus).value_or(""), "{\"x\":1}");
  EXPECT_EQ(ask(socket, device, ::geteuid(), ControlQuestion::kAbort).value_or(""), "3");
  EXPECT_EQ(ask(socket, device, ::geteuid() + 1, ControlQuestion::kStatus).error().code, Errc::kPerm) << "somebody else's socket";
}

TEST(MountOptions, UnknownOptionsAreRefusedWithTheNearest) {
  auto a = parse({"/c", "/mnt", "-o", "sofft=3"});
  ASSERT_FALSE(a);
  EXPECT_THAT(a.error().detail, HasSubstr("soft"));
  EXPECT_THAT(a.error().detail, HasSubstr("sofft=3"));
  EXPECT_TRUE(parse({"/c", "/mnt", "-s", "-o", "sofft=3"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "soft=abc"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "soft="}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "subdir=x"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-o", "key="}));
  EXPECT_THAT(parse({"/c", "/mnt", "-o", "remount,ro"}).error().detail, HasSubstr("unmount it"));
}

TEST(MountOptions, FlagsAndWords) {
  auto a = parse({"-fv", "/c", "-ocluster=/d", "/mnt"});
  ASSERT_TRUE(a);
  EXPECT_TRUE(a->foreground && a->verbose);
  EXPECT_EQ(a->cluster, "/d");
  EXPECT_FALSE(parse({"/c"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "/more"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-z"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-o"}));
  EXPECT_FALSE(parse({"/c", "/mnt", "-N", "/proc/1/ns/mnt"}));
  EXPECT_TRUE(parse({"--help"})->help);
}

TEST(MountOptions, Ports) {
  EXPECT_EQ(port_of("h:7700"), "7700");
  EXPECT_EQ(port_of("h"), "");
  EXPECT_EQ(port_of("fe80::1"), "");
  EXPECT_EQ(port_of("[fe80::1]"), "");
  EXPECT_EQ(port_of("[fe80::1]:7"), "7");
  EXPECT_EQ(with_port("h", "7700"), "h:7700");
  EXPECT_EQ(with_port("h:1", "7700"), "h:1");
  EXPECT_EQ(with_port("fe80::1", "7700"), "[fe80::1]:7700");
  EXPECT_EQ(with_port("[fe80::1]", "7700"), "[fe80::1]:7700");
}

TEST(MountPoint, MountinfoLines) {
  MountLine m;
  ASSERT_TRUE(parse_mount_line("36 35 0:38 / /mnt/with\\040blank rw,relatime shared:1 - fuse.nacre mds1,mds2:/a\\134b rw,user_id=0", m));
  EXPECT_EQ(m.device, "0:38");
  EXPECT_EQ(m.user, 0u);
  MountLine other;
  ASSERT_TRUE(parse_mount_line("36 35 0:39 / /mnt rw - fuse.nacre c rw,group_id=7,user_id=1000,allow_other", other));
  EXPECT_EQ(other.user, 1000u);
  EXPECT_EQ(m.point, "/mnt/with blank");
  EXPECT_EQ(m.type, "fuse.nacre");
  EXPECT_EQ(m.source, "mds1,mds2:/a\\b");
  EXPECT_FALSE(parse_mount_line("36 35 0:38 / /mnt rw", m));
  EXPECT_FALSE(parse_mount_line("", m));
}

TEST(MountPoint, MustBeADirectory) {
  EXPECT_EQ(prepare_point("/nonexistent/x").error().code, Errc::kNoEnt);
  EXPECT_EQ(prepare_point("/etc/passwd").error().code, Errc::kNotDir);
  EXPECT_EQ(prepare_point("/tmp/../tmp/").value_or("?"), "/tmp");
}

}  // namespace
}  // namespace nacre::mount
