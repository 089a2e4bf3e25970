// Runs `tessera conformance` on small files made for this test; checks its output and exit status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "config/test_directory.h"
#include "shell.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Result = tessera::test::Ended;

class Runner : public ::testing::Test {
 protected:
  std::string file(const std::string& text, const std::string& name = "cases.json") {
    return folder_.write(name, text);
  }
  // Makes a file of area sparse.
  std::string cases(const std::string& list) { return file(R"({"area": "sparse", "cases": [)" + list + "]}"); }

  // Its output has both streams.
  static Result run(const std::string& arguments) {
    return tessera::test::run_shell(TESSERA_PROGRAM " conformance " + arguments + " 2>&1");
  }

  static std::string tensor(const std::string& shape, const std::string& dtype, const std::string& data) {
    return R"({"shape": )" + shape + R"(, "dtype": ")" + dtype + R"(", "data": )" + data + "}";
  }
  // A JaggedTensor with the rows [1.5, 2], []; `expect` and `more` are members of the case.
  static std::string one(const std::string& name, const std::string& expect, const std::string& more = "") {
    return R"({"name": ")" + name + R"(", "given": {"op": "jagged_tensor", "values": )" +
           tensor("[2]", "float32", "[1.5, 2.0]") + R"(, "weights": null, "offsets": null, "lengths": )" +
           tensor("[2]", "int32", "[2, 0]") + R"(}, "expect": {)" + expect + "}" + more + "}";
  }
  static std::string good(const std::string& name) {
    return one(name, R"("offsets": )" + tensor("[3]", "int32", "[0, 2, 2]"));
  }

  const tessera::test::TestDirectory folder_;
};

TEST_F(Runner, GoodCasesPassSilently) {
  const Result r = run(cases(good("a") + "," + good("b")));
  EXPECT_EQ(r.output, "2 passed, 0 failed, 0 skipped\n");
  EXPECT_EQ(r.status, 0);
}

TEST_F(Runner, DifferencesNameTheFieldAndTheError) {
  const Result r = run(cases(good("a") + "," + one("b", R"("values": )" + tensor("[2]", "float32", "[1.5, 2.25]"))));
  EXPECT_EQ(r.output, "FAIL b: values, largest error 0.25\n1 passed, 1 failed, 0 skipped\n");
  EXPECT_EQ(r.status, 1);
}

TEST_F(Runner, ToleranceIsOfTheCase) {
  const std::string expect = R"("values": )" + tensor("[2]", "float32", "[1.5, 2.25]");
  EXPECT_EQ(run(cases(one("a", expect, R"(, "tolerance": {"rtol": 0, "atol": 0.25})"))).status, 0);
  EXPECT_EQ(run(cases(one("a", expect, R"(, "tolerance": {"rtol": 0, "atol": 0.24})"))).status, 1);
  EXPECT_EQ(run(cases(one("a", expect, R"(, "tolerance": {"rtol": 0.12, "atol": 0})"))).status, 0);
}

TEST_F(Runner, ShapesTypesIntegersAndTextAreExact) {
  const std::string loose = R"(, "tolerance": {"rtol": 9, "atol": 9})";
  for (const std::string& expect :
       {R"("values": )" + tensor("[1, 2]", "float32", "[1.5, 2.0]"),
        R"("values": )" + tensor("[2]", "float64", "[1.5, 2.0]"), R"("lengths": )" + tensor("[2]", "int32", "[2, 1]"),
        R"("lengths": )" + tensor("[2]", "int64", "[2, 0]"), R"("weights": )" + tensor("[0]", "float32", "[]"),
        std::string(R"("values": null)"), std::string(R"("str": "JaggedTensor")"),
        std::string(R"("no_such_field": 1)")}) {
    const Result r = run(cases(one("a", expect, loose)));
    EXPECT_EQ(r.status, 1) << expect;
    EXPECT_THAT(r.output, HasSubstr("FAIL a: ")) << expect;
  }
}

TEST_F(Runner, QuirksThatDifferPass) {
  const std::string wrong = R"("values": )" + tensor("[2]", "float32", "[0, 0]");
  const Result r = run(cases(one("a", wrong, R"(, "quirk": "of the original")")));
  EXPECT_EQ(r.output, "QUIRK a\n1 passed, 0 failed, 0 skipped\n");
  EXPECT_EQ(r.status, 0);
}

TEST_F(Runner, WhatIsNotThereToCompareFails) {
  EXPECT_EQ(run(cases(one("a", ""))).output, "FAIL a: nothing was compared\n0 passed, 1 failed, 0 skipped\n");
}

TEST_F(Runner, UnknownOpsAndAreasFail) {
  const Result op = run(cases(R"({"name": "x", "given": {"op": "conjure"}, "expect": {}, "quirk": "no excuse"})"));
  EXPECT_THAT(op.output, HasSubstr("FAIL x: area \"sparse\" has no op \"conjure\""));
  EXPECT_EQ(op.status, 1);
  const Result area = run(file(R"({"area": "alchemy", "cases": [{"name": "x", "given": {}, "expect": {}}]})"));
  EXPECT_THAT(area.output, HasSubstr("FAIL x: area \"alchemy\" has no op \"alchemy\""));
  EXPECT_EQ(area.status, 1);
}

TEST_F(Runner, RefusalsMustHappen) {
  const auto refusal = [](const std::string& what, const std::string& more) {
    return R"({"name": "r", "given": {"op": "error", "what": ")" + what + "\"" + more +
           R"(}, "expect": {"error_class": "AssertionError", "error_text": ""}})";
  };
  EXPECT_EQ(run(cases(refusal("KeyedJaggedTensor.concat([])", ""))).status, 0);
  const Result accepted = run(cases(refusal("to_dict when the lengths are too long",
                                            R"(, "keys": ["a"], "values": )" + tensor("[1]", "int64", "[1]") +
                                                R"(, "lengths": )" + tensor("[1]", "int64", "[1]"))));
  EXPECT_THAT(accepted.output, HasSubstr("nothing was refused"));
  EXPECT_EQ(accepted.status, 1);
}

TEST_F(Runner, InputsThatAreWrongFailTheCase) {
  const Result r =
      run(cases(R"({"name": "x", "given": {"op": "kjt", "keys": ["a"]}, "expect": {"stride": 1}},)" + good("b")));
  EXPECT_THAT(r.output, HasSubstr("FAIL x: "));
  EXPECT_THAT(r.output, HasSubstr("1 passed, 1 failed"));
}

TEST_F(Runner, WrongInputsNameTheirField) {
  EXPECT_THAT(run(cases(R"({"name": "x", "given": {"op": "kjt_split", "segments": [1, null], "kjt": {"keys": [],)"
                        R"("values": )" +
                        tensor("[0]", "int64", "[]") + R"(}}, "expect": {"parts": []}})"))
                  .output,
              HasSubstr("FAIL x: given/segments/1: type must be number, but is null\n"));
  EXPECT_THAT(run(cases(R"({"name": "x", "given": {"op": "jagged_tensor_empty"}, "expect": {"str": ""}})")).output,
              HasSubstr("FAIL x: given: key 'is_weighted' not found\n"));
  const std::string table = R"({"rows": 2, "dim": 4, "weight": )" + tensor("[1]", "float32", "[1]") + "}";
  EXPECT_THAT(run(file(R"({"area": "fused_optimizers", "cases": [{"name": "x", "given": {"op": "tbe", "tables": [)" +
                       table + R"(], "hyper": {}, "optimizer": "NONE"}, "expect": {}}]})"))
                  .output,
              HasSubstr("FAIL x: table0 is said to be [2, 4], its weight has the shape [1]\n"));
  const std::string rows =
      R"({"indices": )" + tensor("[1]", "int64", "[1]") + R"(, "values": )" + tensor("[0, 1]", "float32", "[]") + "}";
  const std::string none = tensor("[0]", "int64", "[]"), empty = tensor("[0, 1]", "float32", "[]");
  EXPECT_THAT(
      run(file(R"({"area": "embedding_modules", "cases": [{"name": "x", "given": {"op": "embedding", )"
               R"("weight": )" +
               tensor("[1, 1]", "float32", "[0]") + R"(, "indices": )" + none + R"(, "grad_output": )" + empty +
               R"(}, "expect": {"output": )" + empty + R"(, "grad_weight_sparse": {"uncoalesced": )" + rows + "}}}]}"))
          .output,
      HasSubstr("FAIL x: uncoalesced, want one row of float32 values for each int64 index\n"));
}

TEST_F(Runner, ACaseWithoutTablesFailsByItself) {
  const Result r = run(file(R"({"area": "inference", "cases": [
      {"name": "a", "given": {"module": "quant_ebc", "tables": []}, "expect": {}}]})"));
  EXPECT_EQ(r.output, "FAIL a: given.tables is empty; give at least one table\n0 passed, 1 failed, 0 skipped\n");
  EXPECT_EQ(r.status, 1);
}

// "quant" does not train. In every area that is a limit of the kernel, not a failure of the case.
TEST_F(Runner, WhatTheNamedKernelCannotServeIsSkipped) {
  const std::pair<const char*, int> areas[] = {{"embedding_modules.json --only ^ebc", 1},
                                               {"fused_optimizers.json --only ^exact_sgd", 1},
                                               {"optimizer_wrappers.json", 5},
                                               {"sharded_modules.json --only ^ebc_table_wise_ws2_sgd$", 1}};
  for (const auto& [arguments, least] : areas) {
    const Result r = run(std::string("--kernel quant ") + TESSERA_CASES + arguments);
    if (r.output.find("no plugin provides tessera.kernel/1 \"quant\"") != std::string::npos) GTEST_SKIP() << r.output;
    EXPECT_THAT(r.output, HasSubstr(" 0 failed, "));
    EXPECT_THAT(r.output, HasSubstr("kernel \"quant\" cannot serve these tables"));
    EXPECT_GE(std::stoi(r.output.substr(r.output.rfind("failed, ") + 8)), least);
  }
}

TEST_F(Runner, OnlySelectsByName) {
  const std::string path = cases(good("alpha") + "," + good("beta"));
  EXPECT_THAT(run("--only '^al' " + path).output, HasSubstr("1 passed"));
  const Result none = run("--only gamma " + path);
  EXPECT_THAT(none.output, HasSubstr("0 passed, 0 failed"));
  EXPECT_EQ(none.status, 1);
}

TEST_F(Runner, FilesWithoutAnAreaAreKnownByTheirOps) {
  EXPECT_EQ(run(file(R"({"cases": [)" + good("a") + "]}")).status, 0);
  const Result r = run(file(R"({"cases": [{"name": "x", "given": {"op": "error", "what": ""}, "expect": {}}]})"));
  EXPECT_EQ(r.status, 2);
  EXPECT_THAT(r.output, HasSubstr("does not name its area"));
}

TEST_F(Runner, SeveralFilesAreOneCount) {
  const std::string a = file(R"({"area": "sparse", "cases": [)" + good("a") + "]}", "a.json");
  const std::string b = file(R"({"area": "sparse", "cases": [)" + good("b") + "]}", "b.json");
  EXPECT_EQ(run(a + " " + b).output, "2 passed, 0 failed, 0 skipped\n");
}

// Prints one sentence, exits with status 2, and runs no case.
TEST_F(Runner, WrongUseIsOneSentence) {
  const std::string ok = cases(good("a"));
  for (const std::string& arguments :
       {std::string(), std::string("--bogus"), std::string("/no/such/file.json"), ok + " --only '['",
        ok + " --kernel no_such_kernel", file("{", "x1.json"), file("[]", "x2.json"),
        file(R"({"area": "sparse"})", "x3.json"), file(R"({"area": "sparse", "cases": [1]})", "x4.json"),
        file(R"({"area": "sparse", "cases": [{"name": "n", "given": {}}]})", "x5.json"),
        ok + " " + file("nonsense", "x6.json")}) {
    const Result r = run(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_EQ(std::count(r.output.begin(), r.output.end(), '\n'), 1) << r.output;
    EXPECT_THAT(r.output, Not(HasSubstr("passed"))) << arguments;
    EXPECT_THAT(r.output, HasSubstr("tessera conformance: ")) << arguments;
  }
}

}  // namespace
