// Follows docs/models.md like a new user: writes its configs and runs its commands, in the order of the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/test_model.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Block {
  std::string language, text;
};

std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> out;
  bool inside = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) out.push_back({line.substr(3), ""});
    } else if (inside) {
      out.back().text += line + "\n";
    }
  }
  return out;
}

class ModelsPage : public testing::Test {
 protected:
  // Runs one script of all commands of the page, each echoed, in an otherwise empty folder.
  Finished run(const std::string& script) {
    const std::string folder = fs::path(folder_.file("")).string(), programs = fs::path(tessera_path()).parent_path();
    return run_program({"/bin/sh", "-exc", script}, 120, [&] {
      if (chdir(folder.c_str()) != 0) _exit(126);
      setenv("PATH", (programs + ":" + getenv("PATH")).c_str(), 1);
      setenv("PKG_CONFIG_PATH", folder.c_str(), 1);
    });
  }
  std::string text(const std::string& name) const { return contents(folder_.file(name)); }

  // Provides what the page assumes: a TorchRec model, the example in C, and an installed Tessera to link with.
  void prepare() {
    small_tensors("model.").write(folder_.file("model.safetensors"));
    const std::string source = TESSERA_SOURCE_DIR, libraries = TESSERA_LIBRARY_DIR;
    fs::copy_file(source + "/apps/examples/ask_model.c", folder_.file("ask_model.c"));
    folder_.write("tessera.pc", "Name: tessera\nDescription: of the build\nVersion: 0\nCflags: -I" + source +
                                    "/core/include\nLibs: -L" + libraries + " -Wl,-rpath," + libraries +
                                    " -ltessera " TESSERA_LINK_OPTIONS "\n");
  }

  TestDirectory folder_;
};

TEST_F(ModelsPage, EveryCommandWorks) {
  prepare();
  const bool has_compiler = run("command -v cc && command -v pkg-config").status == 0;
  const bool has_onnx = run("command -v tessera-onnx").status == 0;
  std::string script;
  int configs = 0;
  for (const Block& b : blocks_of(contents(std::string(TESSERA_SOURCE_DIR) + "/docs/models.md"))) {
    if (b.language == "toml") {
      ASSERT_TRUE(b.text.starts_with("# ")) << "the first line names the file:\n" << b.text;
      folder_.write(b.text.substr(2, b.text.find('\n') - 2), b.text);
      ++configs;
    }
    if (b.text.starts_with("tessera model import ")) continue;  // of a file that another program has written
    const bool runs = b.text.starts_with("cc ")                     ? has_compiler
                      : b.text.starts_with("tessera model export ") ? has_onnx
                                                                    : true;
    if (b.language == "sh" && runs) script += b.text;
  }
  EXPECT_EQ(configs, 2);
  const std::string done = succeed(run(script));
  EXPECT_THAT(done, HasSubstr("test: AUC "));
  EXPECT_THAT(done, HasSubstr("tables.toml has no data"));
  EXPECT_THAT(done, HasSubstr("all checksums are right"));
  EXPECT_THAT(done, HasSubstr("film, seen"));
  EXPECT_THAT(text("scores.csv"), testing::StartsWith("row,label,score\n0,1,0."));
  if (has_compiler) {
    EXPECT_THAT(done, HasSubstr("3 dense inputs, 2 features, 2 tables"));
  }
}

}  // namespace
}  // namespace tessera::test
