#include "tessera/config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tessera/error.h"

namespace tessera {
namespace {

Error refusal(const std::string& path) {
  try {
    read_file(path, "cannot read the list ", "; make one");
  } catch (const Error& e) {
    return e;
  }
  return {Code::kOk, ""};
}

TEST(ReadFile, GivesAllOfIt) {
  const std::string path = testing::TempDir() + "read_file_test", text(200'001, '\0');
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_file(path), text);
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(read_file(path), "");
  std::remove(path.c_str());
}

TEST(ReadFile, SaysWhyNot) {
  const Error absent = refusal("/no/such/list");
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_STREQ(absent.what(), "cannot read the list /no/such/list: No such file or directory; make one");
  const Error folder = refusal("/tmp");
  EXPECT_EQ(folder.code(), Code::kNotFound);
  EXPECT_STREQ(folder.what(), "cannot read the list /tmp: Is a directory; make one");
  EXPECT_EQ(refusal("/proc/self/mem").code(), Code::kUnavailable);  // nothing is mapped at its first bytes
}

}  // namespace
}  // namespace tessera
