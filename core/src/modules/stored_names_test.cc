// Names of layers' parameters in checkpoints.
#include "modules/stored_names.h"

#include <gtest/gtest.h>

#include "config/test_refusal.h"

namespace tessera {
namespace {

TEST(StoredNames, PartsStandForParts) {
  const ParameterNames low_rank = {
      {"*.v.weight", "net.V_kernels.*"}, {"*.weight", "net.W_kernels.*"}, {"*.bias", "net.bias.*"}};
  EXPECT_EQ(stored_name("cross", "0.v.weight", low_rank), "net.V_kernels.0");
  EXPECT_EQ(stored_name("cross", "12.weight", low_rank), "net.W_kernels.12");
  EXPECT_EQ(stored_name("cross", "2.bias", low_rank), "net.bias.2");
  EXPECT_EQ(stored_name("cross", "2.gain", low_rank), "cross.2.gain") << "what is not named keeps its name";
  EXPECT_EQ(stored_name("top", "weight", {{"*", "over.*"}}), "over.weight");
  EXPECT_EQ(stored_name("top", "weight", {}), "top.weight");
  EXPECT_EQ(stored_name("a", "1.x.2", {{"*.x.*", "b.*.*"}}), "b.1.2");
}

TEST(StoredNames, WhatIsSaidInLettersPrevails) {
  for (const ParameterNames& names : {ParameterNames{{"*", "m._mlp.*._linear"}, {"2", "last"}},
                                      ParameterNames{{"2", "last"}, {"*", "m._mlp.*._linear"}}}) {
    EXPECT_EQ(stored_name("top", "0.weight", names), "m._mlp.0._linear.weight");
    EXPECT_EQ(stored_name("top", "2.weight", names), "last.weight");
    EXPECT_EQ(stored_name("top", "20.weight", names), "m._mlp.20._linear.weight");
  }
  const ParameterNames longer = {{"*.norm", "norms.*"}, {"*", "layers.*"}};
  EXPECT_EQ(stored_name("top", "1.norm.weight", longer), "norms.1.weight");
  EXPECT_EQ(stored_name("top", "1.weight", longer), "layers.1.weight");
}

TEST(StoredNames, FindsWhatIsOfNoParameter) {
  const std::vector<std::string> own = {"0.weight", "0.bias", "1.weight"};
  EXPECT_EQ(idle_name({{"*", "a.*"}, {"1", "b"}, {"0.bias", "c"}}, own), "");
  EXPECT_EQ(idle_name({{"*", "a.*"}, {"2", "b"}}, own), "2");
  EXPECT_EQ(idle_name({{"0.weight.x", "b"}}, own), "0.weight.x");
  EXPECT_EQ(idle_name({{"*", "a.*"}}, {}), "*");
}

std::string refusal(const std::string& own, const std::string& stored) {
  return test::refusal(
      Code::kInvalidArgument,
      [&] {
        check_names({{own, stored}});
      },
      "");
}

TEST(StoredNames, RefusesWhatIsNoName) {
  EXPECT_EQ(refusal("*.v", "a-b.V_2.*"), "");
  const std::string no_name = ", but between the dots of a name are letters, digits, \"_\" and \"-\", or one \"*\"";
  for (const std::string stored : {"", "a..b", "a.", "a/b", "a b", "a.x*"})
    EXPECT_EQ(refusal("0", stored), "names calls \"0\" \"" + stored + "\"" + no_name);
  for (const auto& [own, stored] : {std::pair("*", "a"), {"0", "a.*"}, {"*.*", "a.*"}})
    EXPECT_EQ(refusal(own, stored), str_cat("names calls \"", own, "\" \"", stored,
                                            "\", but each \"*\" of the one stands for one of the other"));
}

}  // namespace
}  // namespace tessera
