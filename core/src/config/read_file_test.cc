#include "tessera/config.h"

#include <gtest/gtest.h>

#include "config/test_directory.h"
#include "config/test_refusal.h"

namespace tessera {
namespace {

using namespace std::string_literals;

std::pair<std::string, Code> failure(const std::string& path) {
  return test::failure_of([&] { read_file(path, "cannot read the list ", "; make one"); });
}

TEST(ReadFile, GivesAllOfIt) {
  const test::TestDirectory folder;
  const std::string text(200'001, '\0'), path = folder.write("list", text);
  EXPECT_EQ(read_file(path), text);
  folder.write("list", "");
  EXPECT_EQ(read_file(path), "");
}

TEST(ReadFile, SaysWhyNot) {
  EXPECT_EQ(failure("/no/such/list"),
            std::pair("cannot read the list /no/such/list: No such file or directory; make one"s, Code::kNotFound));
  EXPECT_EQ(failure("/tmp"), std::pair("cannot read the list /tmp: Is a directory; make one"s, Code::kNotFound));
  EXPECT_EQ(failure("/proc/self/mem").second, Code::kUnavailable);  // nothing is mapped at its first bytes
}

}  // namespace
}  // namespace tessera
