#include "plugin/part_name.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::plugin {
namespace {

TEST(PartName, TakesLevelsOff) {
  PartName name = parse_part_name("trace(codec:int8(tcp))");
  EXPECT_EQ(name.id, "trace");
  EXPECT_EQ(name.name, "");
  EXPECT_EQ(name.inner, "codec:int8(tcp)");
  name = parse_part_name(name.inner);
  EXPECT_EQ(name.id, "codec");
  EXPECT_EQ(name.name, "int8");
  EXPECT_EQ(name.inner, "tcp");
  EXPECT_EQ(parse_part_name("acme.stripe-2_x").id, "acme.stripe-2_x");
  EXPECT_EQ(parse_part_name("codec:int8").name, "int8");
}

TEST(PartName, RefusesOthers) {
  for (const char* bad :
       {"", "(", "a(", "a)", "a()", "a(b))", "a((b)", "a:(b)", ":b", "a b", "A", "a(b)c", "a(b:)", "a(b(c)", "a/b"}) {
    EXPECT_THROW(parse_part_name(bad), Error) << bad;
  }
  EXPECT_NO_THROW(parse_part_name("a(a(a(a(a(a(a(a)))))))"));
  EXPECT_THROW(parse_part_name("a(a(a(a(a(a(a(a(a))))))))"), Error);
}

TEST(PartName, AddsTheNameToTheOptions) {
  EXPECT_EQ(with_name("{}", ""), "{}");
  EXPECT_EQ(with_name("{}", "int8"), R"({"name":"int8"})");
  EXPECT_EQ(with_name(R"({"block": 4})", "int8"), R"({"block":4,"name":"int8"})");
  EXPECT_THROW(with_name(R"({"name": "x"})", "int8"), Error);
  EXPECT_THROW(with_name("[]", ""), Error);
  EXPECT_THROW(with_name("{", "x"), Error);
}

}  // namespace
}  // namespace tessera::plugin
