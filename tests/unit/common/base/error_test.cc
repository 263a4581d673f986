// SPDX-License-Identifier: Apache-2.0
#include "common/base/error.h"

#include <gtest/gtest.h>

#include <set>

namespace nacre {
namespace {

TEST(ErrorTable, NumbersAndPosixErrnosAreUnique) {
  std::set<int> numbers, errnos;
#define NACRE_ERROR(name, number, err, retryable, text)                    \
  EXPECT_TRUE(numbers.insert(number).second) << #name;                     \
  if (number < 200) EXPECT_TRUE(errnos.insert(err).second) << #name;
#include "common/base/error_table.def"
#undef NACRE_ERROR
}

TEST(ErrorTable, PosixCodesSurviveTheWireAndErrno) {
  for (Errc c : {Errc::kNoEnt, Errc::kExist, Errc::kNotEmpty, Errc::kDQuot, Errc::kNameTooLong}) {
    EXPECT_EQ(from_errno(to_errno(c)), c);
    EXPECT_EQ(from_wire(static_cast<uint16_t>(c)), c);
  }
  EXPECT_EQ(from_wire(65535), Errc::kProtocol);
  EXPECT_EQ(to_errno(static_cast<Errc>(65535)), EIO);
}

TEST(Error, MessageHasTextAndDetail) {
  EXPECT_EQ(Error(Errc::kNoEnt, "file x").message(), "no such file or directory: file x");
  EXPECT_EQ(Error(Errc::kNoEnt).message(), "no such file or directory");
}

TEST(Error, ACheckBetweenIfAndElseLeavesTheElseAlone) {
  auto choose = [](bool first) -> Result<void> {
    if (first) NACRE_CHECK_OK(Result<void>());
    else NACRE_CHECK_OK(Result<void>(Err(Errc::kAccess)));
    return {};
  };
  EXPECT_TRUE(choose(true));
  EXPECT_EQ(choose(false).error().code, Errc::kAccess);
}

}  // namespace
}  // namespace nacre
