#include "config/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
namespace tessera::config {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::ordered_json;

const JsonSource kSource{"file.json", Code::kDataLoss, 1000};

template <class Call>
std::string error_of(const Call& call) {
  return test::refusal(Code::kDataLoss, [&] { call(); });
}
std::string parsing(const std::string& text) {
  return error_of([&] { parse_json(text, kSource); });
}

TEST(Json, SaysWhereItIsNone) {
  EXPECT_EQ(parsing("{\"a\": [1, 2.5, null, \"\\u00e9\"]}"), "no error");
  EXPECT_EQ(parsing(""), "file.json is not JSON: line 1, byte 1: it ends too early");
  EXPECT_EQ(parsing("{\"a\":\n"), "file.json is not JSON: line 2, byte 7: it ends too early");
  EXPECT_EQ(parsing("{\n\"a\": x}"), "file.json is not JSON: line 2, byte 8: unexpected 'x'");
  EXPECT_EQ(parsing("{} {}"), "file.json is not JSON: line 1, byte 4: unexpected '{'");
  EXPECT_EQ(parsing("[\"a\n\"]"), "file.json is not JSON: line 1, byte 4: unexpected the line's end");
  EXPECT_EQ(parsing("[\"\xff\"]"), "file.json is not JSON: line 1, byte 3: unexpected the byte 255");
  EXPECT_EQ(parsing(std::string("{}\0x", 4)), "file.json is not JSON: line 1, byte 3: unexpected the byte 0");
  EXPECT_EQ(parsing("[1e999]"), "file.json holds a number that is too large");
}

TEST(Json, IsLimitedInSizeAndDepth) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(parsing(nested(32)), "no error");
  EXPECT_EQ(parsing(nested(33)), "file.json is nested deeper than 32");
  EXPECT_EQ(parsing(std::string(900, '[')), "file.json is nested deeper than 32");
  EXPECT_EQ(parsing("[\"" + std::string(400, '[') + "\\\"" + std::string(400, '{') + "\"]"), "no error") << "a text";
  EXPECT_EQ(parsing(nested(501)), "file.json has 1002 bytes of JSON, and at most 1000 are read");
}

TEST(Json, ReadsMembersByName) {
  const Json root = Json::parse(
      R"({"text": "x", "on": true, "n": 7, "large": 9223372036854775808, "x": 0.5, "crc": "00ff00aa",
          "list": [1, 2], "texts": [["a"], []], "parts": [{"n": 1}, {"n": "two"}], "inner": {"n": 3}, "nothing": null,
          "named": {"a": {}, "b": {}}, "tables": [{"name": "film"}, {}]})");
  const JsonObject o(root, kSource);
  EXPECT_EQ(o.get<std::string>("text"), "x");
  EXPECT_TRUE(o.get<bool>("on"));
  EXPECT_EQ(o.get<int>("n"), 7);
  EXPECT_EQ(o.get<double>("n"), 7.0);
  EXPECT_EQ(o.get<int64_t>("absent", -1), -1);
  EXPECT_EQ(o.hex("crc"), 0xff00aau);
  EXPECT_THAT(o.get<std::vector<int64_t>>("list"), ElementsAre(1, 2));
  EXPECT_THAT(o.get<std::vector<std::vector<std::string>>>("texts"), ElementsAre(ElementsAre("a"), ElementsAre()));
  EXPECT_EQ(o.object("inner").get<int>("n"), 3);
  EXPECT_EQ(o.objects("parts")[0].get<int>("n"), 1);

  int n = 1;
  o.read("absent", n);
  EXPECT_EQ(n, 1);
  o.read("n", n);
  EXPECT_EQ(n, 7);
  std::optional<double> maybe;
  o.read("nothing", maybe);
  EXPECT_FALSE(maybe);
  o.read("x", maybe);
  EXPECT_EQ(maybe, 0.5);
  EXPECT_EQ(o.within("n", 7, 9), 7);
  EXPECT_EQ(o.object("named").members()[1].first, "b");

  const auto error = [](const auto& call) { return error_of(call); };
  EXPECT_EQ(error([&] { o.within("n", 8, 9); }), "file.json: n is 7; from 8 to 9 is expected");
  EXPECT_EQ(error([&] { o.object("inner").only({"n"}); }), "no error");
  EXPECT_EQ(error([&] {
              o.object("inner").only({"nn", "x"});
            }),
            "file.json: inner has an unknown key \"n\"; did you mean \"nn\"?");
  EXPECT_EQ(error([&] { o.object("named").only({"a"}); }),
            "file.json: named has an unknown key \"b\"; did you mean \"a\"?");
  EXPECT_EQ(error([&] { o.objects("tables", "name")[0].get<int>("rows"); }),
            "file.json: tables[\"film\"].rows is missing");
  EXPECT_EQ(error([&] { o.objects("tables", "name")[1].get<int>("rows"); }), "file.json: tables[1].rows is missing");
  EXPECT_EQ(error([&] { JsonObject::list(root, kSource); }), "file.json is not a list [...]");
  EXPECT_EQ(error([&] { JsonObject::list(root["parts"], kSource)[1].get<int>("m"); }), "file.json: [1].m is missing");
  EXPECT_EQ(error([&] {
              JsonObject(root, {"f", Code::kDataLoss, 1, "; ask"}).get<int>("absent");
            }),
            "f: absent is missing; ask");
  EXPECT_EQ(error([&] { o.get<int>("absent"); }), "file.json: absent is missing");
  EXPECT_EQ(error([&] { o.get<int>("x"); }), "file.json: x is 0.5; a whole number is expected");
  EXPECT_EQ(error([&] { o.get<int>("on"); }), "file.json: on is true; a whole number is expected");
  EXPECT_EQ(error([&] { o.get<int64_t>("large"); }),
            "file.json: large is 9223372036854775808; a whole number is expected");
  EXPECT_EQ(error([&] { o.get<std::string>("n"); }), "file.json: n is 7; a text is expected");
  EXPECT_EQ(error([&] { o.hex("text"); }), "file.json: text is \"x\"; a text of 8 hexadecimal digits is expected");
  EXPECT_EQ(error([&] { o.objects("parts")[1].get<int>("n"); }),
            "file.json: parts[1].n is \"two\"; a whole number is expected");
  EXPECT_EQ(error([&] { o.object("list"); }), "file.json: list is not an object {...}");
  EXPECT_EQ(error([&] { o.objects("inner"); }), "file.json: inner is an object; a list is expected");
  EXPECT_EQ(error([&] { JsonObject(Json(3), kSource); }), "file.json: it is not an object {...}");
  EXPECT_EQ(error([&] { JsonObject(root, {"", Code::kDataLoss}).get<int>("absent"); }), "absent is missing");
}

}  // namespace
}  // namespace tessera::config
