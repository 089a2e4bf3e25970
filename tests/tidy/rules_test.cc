#include "rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> rules_of(const std::vector<Finding>& findings) {
  std::vector<std::string> rules;
  for (const Finding& f : findings) rules.push_back(f.rule);
  return rules;
}
std::vector<std::string> broken(const std::string& path, const std::string& text) {
  return rules_of(check(path, text));
}

std::string repeat(const std::string& line, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += line;
  return text;
}

TEST(Tidy, CleanFileHasNoFindings) {
  EXPECT_THAT(check("core/src/sparse/x.cc", "#include \"plugin/y.h\"\nint f() { return 1; }\n"), IsEmpty());
}

TEST(Tidy, FileLength) {
  EXPECT_THAT(broken("core/src/sparse/x.cc", repeat("int a;\n", 500)), IsEmpty());
  EXPECT_THAT(broken("core/src/sparse/x.cc", repeat("int a;\n", 501)), ElementsAre("file-lines"));
  EXPECT_THAT(broken("core/src/sparse/x_test.cc", repeat("int a;\n", 800)), IsEmpty());
  EXPECT_THAT(broken("core/src/sparse/x_test.cc", repeat("int a;\n", 801)), ElementsAre("file-lines"));
  EXPECT_THAT(broken("docs/x.md", repeat("word\n", 900)), IsEmpty());
}

TEST(Tidy, LinesAreMeasuredInCharacters) {
  EXPECT_THAT(broken("a.cc", "// " + std::string(117, 'x') + "\n"), IsEmpty());
  EXPECT_THAT(broken("a.cc", "// " + repeat("\u00e4", 117) + "\n"), IsEmpty());
  EXPECT_THAT(broken("a.cc", "// " + std::string(118, 'x') + "\n"), ElementsAre("line-width"));
}

TEST(Tidy, WhiteSpaceAndLineEnds) {
  EXPECT_THAT(broken("a.cc", "int a; \n"), ElementsAre("trailing-space"));
  EXPECT_THAT(broken("a.md", "word\t\n"), ElementsAre("trailing-space"));
  EXPECT_THAT(broken("a.cc", "int a;\r\n"), ElementsAre("trailing-space"));
  EXPECT_THAT(broken("a.cc", "int a;"), ElementsAre("final-newline"));
}

TEST(Tidy, UnfinishedWork) {
  EXPECT_THAT(broken("a.cc", std::string("// TO") + "DO: later\n"), ElementsAre("unfinished"));
  EXPECT_THAT(broken("scripts/a", std::string("# FIX") + "ME\n"), ElementsAre("unfinished"));
  EXPECT_THAT(broken("a.cc", std::string("int TO") + "DOS;\n"), IsEmpty());
}

TEST(Tidy, EnvironmentIsReadInNamedFilesOnly) {
  EXPECT_THAT(broken("core/src/data/x.cc", "auto a = std::getenv(\"A\");\n"), ElementsAre("getenv"));
  EXPECT_THAT(broken("plugins/p/x.cc", "auto a = secure_getenv(\"A\");\n"), ElementsAre("getenv"));
  EXPECT_THAT(broken("core/src/data/x.cc", "// getenv is not called here\n"), IsEmpty());
  EXPECT_THAT(broken("core/src/data/x_test.cc", "auto a = std::getenv(\"A\");\n"), IsEmpty());
}

TEST(Tidy, TheCorePrintsNothing) {
  EXPECT_THAT(broken("core/src/data/x.cc", "void f() { std::cout << 1; }\n"), ElementsAre("core-prints"));
  EXPECT_THAT(broken("core/src/data/x.cc", "void f() { std::printf(\"\"); }\n"), ElementsAre("core-prints"));
  EXPECT_THAT(broken("core/src/data/x.cc", "void f() { std::snprintf(b, 1, \"\"); }\n"), IsEmpty());
  EXPECT_THAT(broken("apps/tessera/x.cc", "void f() { std::cout << 1; }\n"), IsEmpty());
}

TEST(Tidy, ASentenceBeginsWithItsSubject) {
  EXPECT_THAT(broken("plugins/x.cc", "// Of the next rows, the one used least.\n"), ElementsAre("opener"));
  EXPECT_THAT(broken("plugins/x.cc", "int a;  // its width\nint b; " + std::string(" // Where it is\n")),
              ElementsAre("opener"));
  EXPECT_THAT(broken("plugins/x.cc", "// The rows.\n// As many as there are.\n"), ElementsAre("opener"));
  EXPECT_THAT(broken("plugins/x.cc", "// The rows that came\n// To the rank.\n"), IsEmpty()) << "it goes on";
  EXPECT_THAT(broken("plugins/x.cc", "f(\"// Of it\");\n// Officers\n"), IsEmpty());
  EXPECT_THAT(broken("docs/x.md", "# What it is\n\nWhat a signal ends is not tested.\n"), ElementsAre("opener"));
  EXPECT_THAT(broken("docs/x.md", "To build:\n\n```\nOf\n```\n\nThe rows\nOf a table.\n"), IsEmpty());
}

TEST(Tidy, NamesOfComponentsBelongToTheRegistry) {
  EXPECT_THAT(broken("core/src/planner/x.cc", "bool a = s.sharding_type == \"row_wise\";\n"),
              ElementsAre("component-name"));
  EXPECT_THAT(broken("core/src/distributed/x.cc", "bool a = g.backend() != \"tcp\";\n"), ElementsAre("component-name"));
  EXPECT_THAT(broken("core/src/plugin/x.cc", "bool a = kind == \"tessera.sharder/1\";\n"), IsEmpty());
  EXPECT_THAT(broken("core/src/planner/x.cc", "bool a = backend == \"auto\";\n"), IsEmpty());
  EXPECT_THAT(broken("core/src/planner/x.cc", "bool a = backend == \"\";\n"), IsEmpty());
  EXPECT_THAT(broken("core/src/planner/x.cc", "bool a = mankind == \"us\";\n"), IsEmpty());
}

TEST(Tidy, RoomsIncludeOnlyLowerRooms) {
  EXPECT_THAT(broken("core/src/sparse/x.cc", "#include \"planner/y.h\"\n"), ElementsAre("folder"));
  EXPECT_THAT(broken("core/src/planner/x.cc", "#include \"sparse/y.h\"\n"), IsEmpty());
  EXPECT_THAT(broken("core/src/cellar/x.cc", "#include <vector>\n"), ElementsAre("folder"));
  EXPECT_THAT(broken("core/src/planner/x.cc", "#include \"kernels_cpu/y.h\"\n"), ElementsAre("folder"));
  EXPECT_THAT(broken("core/include/tessera/x.h", "#pragma once\n#include <cuda_runtime.h>\n"), ElementsAre("folder"));
}

TEST(Tidy, PluginsSeeTheContractAlone) {
  EXPECT_THAT(broken("plugins/p/x.cc", "#include \"tessera/runtime.h\"\n"), ElementsAre("folder"));
  EXPECT_THAT(broken("kernels_cpu/x.cc", "#include \"sparse/y.h\"\n"), ElementsAre("folder"));
  EXPECT_THAT(broken("sharding_strategies/s/x.cc", "#include \"tessera/sdk/sharder.h\"\n"), IsEmpty());
  EXPECT_THAT(broken("plugins/p/x_test.cc", "#include \"tessera/runtime.h\"\n"), IsEmpty());
}

TEST(Tidy, ProgramsIncludePublicHeaders) {
  const std::set<std::string> core = {"data/columns.h"};
  const auto rules = [&](const std::string& path) {
    return rules_of(check(path, "#include \"data/columns.h\"\n#include \"tessera/data.h\"\n", {}, core));
  };
  EXPECT_THAT(rules("apps/tessera/x.cc"), ElementsAre("core-include:data/columns.h"));
  EXPECT_THAT(rules("apps/tessera/x_test.cc"), IsEmpty());
  EXPECT_THAT(rules("core/src/train/x.cc"), IsEmpty());
  std::vector<Finding> findings;
  const auto allowed = parse_exceptions("l.txt", "core-include:data/columns.h apps/tessera/x.cc a reason\n", findings);
  findings = check("apps/tessera/x.cc", "#include \"data/columns.h\"\n", {}, core);
  EXPECT_THAT(apply_exceptions(findings, allowed, "l.txt"), IsEmpty());
  EXPECT_THAT(rules_of(apply_exceptions({}, allowed, "l.txt")), ElementsAre("exceptions"));  // it only gets shorter
}

TEST(Tidy, MachinePaths) {
  const std::string home = std::string("/ho") + "me/";
  EXPECT_THAT(broken("docs/a.md", "see " + home + "ann\n"), ElementsAre("machine-path"));
  EXPECT_THAT(broken("tests/a.json", "\"" + home + "ann\"\n"), ElementsAre("machine-path"));
  EXPECT_THAT(broken("configs/a.csv", std::string(700, '\n')), IsEmpty());
  EXPECT_THAT(broken("docs/a.md", "see $x" + home + "ann or https://x.org" + home + "page\n"), IsEmpty());
}

TEST(Tidy, NativeBinariesAndGuards) {
  EXPECT_THAT(broken("cmake/a.cmake", std::string("-march=") + "native\n"), ElementsAre("march-native"));
  EXPECT_THAT(broken("core/include/tessera/x.h", "int a;\n"), ElementsAre("include-guard"));
  EXPECT_THAT(broken("kernels_cpu/x-inl.h", "#if defined(X_H_) == defined(HWY_TARGET_TOGGLE)\n#endif\n"), IsEmpty());
}

TEST(Tidy, JsonIsParsedInOnePlace) {
  const std::string code = "auto j = nlohmann::ordered_json::parse(text);\n";
  EXPECT_THAT(broken("core/src/data/a.cc", code), ElementsAre("json"));
  EXPECT_THAT(broken("core/src/data/a.cc", "auto j = Json::parse(text);\n"), ElementsAre("json"));
  EXPECT_THAT(broken("core/src/data/a.cc", "auto j = config::parse_json(text, {path});\n"), IsEmpty());
  EXPECT_THAT(broken("core/src/data/a_test.cc", code), IsEmpty());
}

TEST(Tidy, FunctionLength) {
  const std::string statements = repeat("  g();\n", 68);
  EXPECT_THAT(broken("a.cc", "void f() {\n" + statements + "}\n"), IsEmpty());
  EXPECT_THAT(broken("a.cc", "void f() {\n" + statements + "  g();\n}\n"), ElementsAre("function-lines"));
  EXPECT_THAT(broken("a.cc", "TEST(A, B) {\n" + statements + "  g();\n}\n"), ElementsAre("function-lines"));
}

TEST(Tidy, FunctionsAreFoundInsideScopes) {
  const std::string source =
      "namespace a {\n"                               // 1
      "class alignas(64) B : public C<int(int)> {\n"  // 2
      " public:\n"                                    // 3
      "  B() : x_(1), y_(2) {}\n"                     // 4
      "  int f() const {\n"                           // 5
      "    if (x_) { return '{'; }\n"                 // 6
      "    return 1'000;\n"                           // 7
      "  }\n"                                         // 8
      "  int x_ = 0;\n"                               // 9
      "};\n"                                          // 10
      "constexpr int kTable[] = {1, 2};  // f() {\n"  // 11
      "const char* text = R\"({ f() { )\";\n"         // 12
      "template <class T, class U = B<T>>\n"          // 13
      "auto g(T t) -> decltype(t) {\n"                // 14
      "  return t;\n"                                 // 15
      "}\n"                                           // 16
      "}  // namespace a\n";
  const std::vector<Function> found = functions(source);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].first_line, 4u);
  EXPECT_EQ(found[1].first_line, 5u);
  EXPECT_EQ(found[1].lines, 4u);
  EXPECT_EQ(found[2].first_line, 13u);
  EXPECT_EQ(found[2].lines, 4u);
}

TEST(Tidy, CodeOnlyKeepsLinesAndDropsTheRest) {
  EXPECT_EQ(code_only("a /* b\nc */ d // e\n#define F \\\n  {\n\"x\\\"y\" z"),
            "a     \n     d     \n           \n   \n       z");
}

TEST(Tidy, ExceptionsNeedAReasonAndAUse) {
  std::vector<Finding> findings = check("a.cc", "int a; \n");
  ASSERT_THAT(rules_of(findings), ElementsAre("trailing-space"));
  std::vector<Finding> wrong;
  EXPECT_THAT(parse_exceptions("e", "# note\n\ntrailing-space a.cc\n", wrong), IsEmpty());
  EXPECT_THAT(rules_of(wrong), ElementsAre("exceptions"));
  const std::vector<Exception> exceptions =
      parse_exceptions("e", "trailing-space a.cc because\ngetenv b.cc it did once\n", wrong);
  ASSERT_EQ(exceptions.size(), 2u);
  findings = apply_exceptions(findings, exceptions, "e");
  EXPECT_THAT(rules_of(findings), ElementsAre("exceptions"));
  EXPECT_THAT(findings[0].text, ::testing::HasSubstr("getenv b.cc"));
}

TEST(PartIds, AreFoundInPluginsAndRefusedInTheCore) {
  const std::string plugin =
      "TESSERA_PLUGIN(\"x\", component<X>({.id = \"acme.x\", .version = \"1\"}), X({.id = \"none\"}));\n";
  const std::set<std::string> ids = component_ids("plugins/x/x.cc", plugin);
  EXPECT_EQ(ids, (std::set<std::string>{"acme.x", "none"}));
  EXPECT_EQ(component_ids("kernels_cuda/k.h", "#define GPU_KIND_NAME \"gpu\"\n"), std::set<std::string>{"gpu"});
  EXPECT_TRUE(component_ids("core/src/planner/a.cc", plugin).empty());
  const std::string text = "f(\"of acme.x\", \"acme.x\", \"none\");  // \"acme.x\"\n";
  EXPECT_THAT(rules_of(check("core/src/planner/a.cc", text, ids)), ElementsAre("component-id"));
  EXPECT_THAT(rules_of(check("core/include/tessera/a.h", "#pragma once\n" + text, ids)), ElementsAre("component-id"));
  for (const char* allowed : {"core/src/planner/torchrec/a.cc", "core/src/plugin/a.cc", "core/src/planner/a_test.cc",
                              "core/src/planner/testing/a.cc", "core/src/train/test_a.h", "apps/tessera/a.cc"})
    EXPECT_TRUE(rules_of(check(allowed, "#pragma once\n" + text, ids)).empty()) << allowed;
}

TEST(Lines, AreCountedByRoom) {
  std::map<std::string, FolderLines> folders;
  count_lines("core/src/planner/a.cc", "a\nb\n", folders);
  count_lines("core/src/planner/torchrec/a.h", "a\n", folders);
  count_lines("core/src/planner/a_test.cc", "a\n", folders);
  count_lines("core/src/wiring/CMakeLists.txt", "a\n", folders);
  count_lines("apps/tessera/a.cc", "a\n", folders);
  ASSERT_EQ(folders.size(), 1u);
  EXPECT_EQ(folders["planner"].sources, 3u);
  EXPECT_EQ(folders["planner"].tests, 1u);
}

}  // namespace
}  // namespace tidy
