// SPDX-License-Identifier: Apache-2.0
#include "common/wire/capability.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace nacre::wire {
namespace {
constexpr size_t kCapMacSize = 16;
constexpr size_t kKeyFileLimit = 4096;  ///< bytes read of a key file: 64 digits, and room for blanks around them

/// One context per thread: fetching the algorithm costs more than the HMAC of a capability.
EVP_MAC_CTX* mac_context() {
  struct Holder {
    EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX* ctx = mac ? EVP_MAC_CTX_new(mac) : nullptr;
    Holder() {
      char digest[] = "SHA256";
      const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_construct_end()};
      if (!ctx || !EVP_MAC_CTX_set_params(ctx, params)) std::abort();  // a libcrypto without HMAC-SHA256: nothing can be trusted
    }
    ~Holder() {
      EVP_MAC_CTX_free(ctx);
      EVP_MAC_free(mac);
    }
  };
  thread_local Holder holder;
  return holder.ctx;
}

template <class T>
void put(std::vector<uint8_t>& out, T v) {
  uint8_t raw[sizeof v];
  std::memcpy(raw, &v, sizeof v);
  out.insert(out.end(), raw, raw + sizeof v);
}

/// The bytes under the signature: a label, then every field but the mac, little-endian.
std::array<uint8_t, kCapMacSize> mac_of(const Key& key, const CapabilityT& c) {
  static constexpr std::string_view kLabel = "nacre capability 1";
  std::vector<uint8_t> m(kLabel.begin(), kLabel.end());
  put(m, c.session);
  put(m, c.ino);
  put(m, c.generation);
  put(m, c.components);
  put(m, c.mode);
  put(m, c.fileset);
  put(m, c.epoch);
  put(m, c.expires);
  const auto full = hmac(key, m);
  std::array<uint8_t, kCapMacSize> out;
  std::copy_n(full.begin(), kCapMacSize, out.begin());
  return out;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

std::array<uint8_t, 32> hmac(const Key& key, std::span<const uint8_t> message) {
  EVP_MAC_CTX* ctx = mac_context();
  std::array<uint8_t, 32> out;
  size_t n = 0;
  if (!EVP_MAC_init(ctx, key.data(), key.size(), nullptr) || !EVP_MAC_update(ctx, message.data(), message.size()) ||
      !EVP_MAC_final(ctx, out.data(), &n, out.size()) || n != out.size())
    std::abort();  // as above
  return out;
}

Key derive_key(const Key& cluster_key, std::string_view purpose) {
  return hmac(cluster_key, {reinterpret_cast<const uint8_t*>(purpose.data()), purpose.size()});
}

bool equal_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<Key> read_key_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) {
    const int e = errno;
    if (e == ENOENT || e == ENOTDIR) return Err(Errc::kNoEnt, fmt::format("there is no key file '{}': `nacre cluster init` makes it; copy it from a host of the cluster", path));
    return Err(Errc::kAuth, fmt::format("the key file '{}' can't be read ({}): commands that need the cluster key run as root", path, std::strerror(e)));
  }
  struct stat st;
  std::string text(kKeyFileLimit, '\0');
  const bool stat_ok = ::fstat(fd, &st) == 0;
  const ssize_t n = ::read(fd, text.data(), text.size());
  ::close(fd);
  if (!stat_ok || n < 0 || !S_ISREG(st.st_mode)) return Err(Errc::kAuth, fmt::format("the key file '{}' can't be read: it must be a regular file", path));
  if (st.st_mode & 077) return Err(Errc::kAuth, fmt::format("others can read the key file '{}' (mode {:04o}): run `chmod 400 {}`", path, st.st_mode & 07777, path));
  text.resize(static_cast<size_t>(n));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  Key key;
  bool good = text.size() == 2 * kKeySize;
  for (size_t i = 0; good && i < kKeySize; ++i) {
    const int hi = digit(text[2 * i]), lo = digit(text[2 * i + 1]);
    good = hi >= 0 && lo >= 0;
    key[i] = static_cast<uint8_t>(hi << 4 | lo);
  }
  OPENSSL_cleanse(text.data(), text.size());
  if (!good) return Err(Errc::kConfig, fmt::format("the key file '{}' doesn't hold a key: it must be one line of {} hex digits", path, 2 * kKeySize));
  return key;
}

void sign(const Key& key, CapabilityT& cap) {
  const auto mac = mac_of(key, cap);
  cap.mac.assign(mac.begin(), mac.end());
}

Result<void> verify(const Key& key, const CapabilityT& cap, const ObjectId& object, uint8_t mode, Nanos now) {
  if (!equal_constant_time(cap.mac, mac_of(key, cap))) return Err(Errc::kCapInvalid, fmt::format("the capability for inode {} bears no signature of this cluster", cap.ino));
  return check(cap, object, mode, now);
}

Result<void> check(const CapabilityT& cap, const ObjectId& object, uint8_t mode, Nanos now) {
  if (cap.ino != object.ino.v || cap.generation != object.generation.v)
    return Err(Errc::kCapInvalid, fmt::format("a capability for inode {} generation {} was shown for object {}", cap.ino, cap.generation, object));
  if (object.component >= 64 || !(cap.components >> object.component & 1)) return Err(Errc::kCapInvalid, fmt::format("the capability doesn't cover component {} of inode {}", object.component, cap.ino));
  if ((cap.mode & mode) != mode) return Err(Errc::kCapInvalid, fmt::format("the capability for inode {} allows mode {}, the request needs {}", cap.ino, cap.mode, mode));
  if (cap.expires <= now) return Err(Errc::kCapExpired, fmt::format("the capability for inode {} expired {} ms ago", cap.ino, (now - cap.expires) / kMillisecond));
  return {};
}

}  // namespace nacre::wire
