// SPDX-License-Identifier: Apache-2.0
#include "common/wire/capability.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/wire/bits.h"
#include "tests/unit/common/wire/golden.h"

namespace nacre::wire {
namespace {

Key test_key() {
  Key k;
  for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<uint8_t>(i);
  return k;
}
CapabilityT signed_sample() {
  CapabilityT c;
  c.session = 9, c.ino = 77, c.generation = 2, c.components = 0b101, c.mode = kCapRead, c.fileset = 4, c.epoch = 6, c.expires = 1000 * kSecond;
  sign(test_key(), c);
  return c;
}
const ObjectId kCapObject{Ino(77), Generation(2), 2, 9};

TEST(Capability, HmacMatchesRfc4231) {
  // Test case 1 of RFC 4231 has a key of 20 bytes 0x0b; HMAC pads keys with zeros, so a 32-byte key with a zero tail is the same.
  Key key{};
  std::fill_n(key.begin(), 20, 0x0b);
  const std::string text = "Hi There";
  EXPECT_EQ(testing::hex(derive_key(key, text)), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(Capability, GoldenMac) { EXPECT_EQ(testing::hex(signed_sample().mac), testing::golden("capability_mac_v1.hex")); }

TEST(Capability, VerifiesWhatWasSigned) {
  EXPECT_TRUE(verify(test_key(), signed_sample(), kCapObject, kCapRead, 999 * kSecond));
  EXPECT_TRUE(verify(test_key(), signed_sample(), ObjectId{Ino(77), Generation(2), 0, 0}, kCapRead, 0));
}

TEST(Capability, RefusesEveryChange) {
  auto code = [](const CapabilityT& c, ObjectId o = kCapObject, uint8_t mode = kCapRead, Nanos now = 0) {
    auto r = verify(test_key(), c, o, mode, now);
    return r ? Errc::kOk : r.error().code;
  };
  std::vector<CapabilityT> forged(9, signed_sample());
  forged[0].session++, forged[1].ino++, forged[2].generation++, forged[3].components |= 2, forged[4].mode |= kCapWrite;
  forged[5].fileset++, forged[6].epoch++, forged[7].expires++, forged[8].mac.pop_back();
  for (const auto& c : forged) EXPECT_EQ(code(c), Errc::kCapInvalid);
  Key other = test_key();
  other[0] ^= 1;
  EXPECT_FALSE(verify(other, signed_sample(), kCapObject, kCapRead, 0));

  EXPECT_EQ(code(signed_sample(), kCapObject, kCapWrite), Errc::kCapInvalid);
  EXPECT_EQ(code(signed_sample(), {Ino(78), Generation(2), 2, 9}), Errc::kCapInvalid);
  EXPECT_EQ(code(signed_sample(), {Ino(77), Generation(1), 2, 9}), Errc::kCapInvalid);
  EXPECT_EQ(code(signed_sample(), {Ino(77), Generation(2), 1, 9}), Errc::kCapInvalid);
  EXPECT_EQ(code(signed_sample(), {Ino(77), Generation(2), 64, 9}), Errc::kCapInvalid);
  EXPECT_EQ(code(signed_sample(), kCapObject, kCapRead, 1000 * kSecond), Errc::kCapExpired);
}

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() : path_(::testing::TempDir() + "nacre-key-" + std::to_string(::getpid())) { ::unlink(path_.c_str()); }
  ~KeyFile() override { ::unlink(path_.c_str()); }
  Errc read(const std::string& text, mode_t mode) {
    ::unlink(path_.c_str());
    int fd = ::open(path_.c_str(), O_CREAT | O_WRONLY, 0600);
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
    ::chmod(path_.c_str(), mode);
    auto key = read_key_file(path_);
    if (!key) {
      EXPECT_NE(key.error().detail.find(path_), std::string::npos) << key.error().detail;
      return key.error().code;
    }
    EXPECT_EQ(*key, test_key());
    return Errc::kOk;
  }
  std::string path_;
};

TEST_F(KeyFile, ReadsAndRefuses) {
  const std::string good = testing::hex(test_key());
  EXPECT_EQ(read(good, 0400), Errc::kOk);
  EXPECT_EQ(read(good + "\n", 0600), Errc::kOk);
  EXPECT_EQ(read(good, 0440), Errc::kAuth);
  EXPECT_EQ(read(good, 0404), Errc::kAuth);
  EXPECT_EQ(read(good.substr(1), 0400), Errc::kConfig);
  EXPECT_EQ(read(good + "0", 0400), Errc::kConfig);
  EXPECT_EQ(read("x" + good.substr(1), 0400), Errc::kConfig);
  EXPECT_EQ(read("", 0400), Errc::kConfig);
  auto missing = read_key_file(path_ + "-missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::kNoEnt);
}

}  // namespace
}  // namespace nacre::wire
