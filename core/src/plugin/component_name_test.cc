#include "tessera/runtime.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera {
namespace {

TEST(ComponentName, TakesLevelsOff) {
  ComponentName name = parse_component_name("trace(codec:int8(tcp))");
  EXPECT_EQ(name.id, "trace");
  EXPECT_EQ(name.name, "");
  EXPECT_EQ(name.inner, "codec:int8(tcp)");
  name = parse_component_name(name.inner);
  EXPECT_EQ(name.id, "codec");
  EXPECT_EQ(name.name, "int8");
  EXPECT_EQ(name.inner, "tcp");
  EXPECT_EQ(parse_component_name("acme.stripe-2_x").id, "acme.stripe-2_x");
  EXPECT_EQ(parse_component_name("codec:int8").name, "int8");
}

TEST(ComponentName, RefusesOthers) {
  for (const char* bad :
       {"", "(", "a(", "a)", "a()", "a(b))", "a((b)", "a:(b)", ":b", "a b", "A", "a(b)c", "a(b:)", "a(b(c)", "a/b"}) {
    EXPECT_THROW(parse_component_name(bad), Error) << bad;
  }
  EXPECT_NO_THROW(parse_component_name("a(a(a(a(a(a(a(a)))))))"));
  EXPECT_THROW(parse_component_name("a(a(a(a(a(a(a(a(a))))))))"), Error);
}

TEST(ComponentName, HasOptionsOfItsOwn) {
  const ComponentName name = parse_component_name("codec:int8?block=4&exact=false&mode=fast,a(tcp?spin_us=2.5)");
  EXPECT_EQ(name.id, "codec");
  EXPECT_EQ(name.name, "int8");
  EXPECT_EQ(name.options, R"({"block":4,"exact":false,"mode":"fast,a"})");
  EXPECT_EQ(name.inner, "tcp?spin_us=2.5");
  EXPECT_EQ(parse_component_name(name.inner).options, R"({"spin_us":2.5})");
  EXPECT_EQ(parse_component_name("tcp").options, "{}");
  EXPECT_EQ(parse_component_name("tcp?note=").options, R"({"note":""})");
  for (const char* bad : {"tcp?", "tcp?shm", "tcp?=1", "tcp&shm=1", "tcp?a=1?b=2", "tcp?a=1&", "tcp?a=1&a=2", "tcp?a=(",
                          "tcp?a=1(b", "tcp?a=\xff"}) {
    EXPECT_THROW(parse_component_name(bad), Error) << bad;
  }
}

std::string all(const std::string& options, const std::string& part) {
  return all_options(options, parse_component_name(part));
}

TEST(ComponentName, AddsWhatItSaysToTheOptions) {
  EXPECT_EQ(all("{}", "a"), "{}");
  EXPECT_EQ(all("{}", "a:int8"), R"({"name":"int8"})");
  EXPECT_EQ(all(R"({"block": 4})", "a:int8"), R"({"block":4,"name":"int8"})");
  EXPECT_EQ(all(R"({"block": 4})", "a?exact=true"), R"({"block":4,"exact":true})");
  EXPECT_THROW(all(R"({"name": "x"})", "a:int8"), Error);
  EXPECT_THROW(all("{}", "a:int8?name=x"), Error);
  EXPECT_THROW(all(R"({"block": 4})", "a?block=8"), Error);
  EXPECT_THROW(all("[]", "a"), Error);
  EXPECT_THROW(all("{", "a:x"), Error);
}

}  // namespace
}  // namespace tessera
