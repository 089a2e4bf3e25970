// Checks the documents: examples are those that are compiled, configs can be read, links lead somewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/config.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TESSERA_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The contents of a Markdown page's code blocks in one language.
std::vector<std::string> blocks(const std::string& page, const std::string& language) {
  std::vector<std::string> found;
  std::istringstream lines(read(kRoot / page));
  bool inside = false, wanted = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      wanted = inside && line == "```" + language;
      if (wanted) found.emplace_back();
    } else if (inside && wanted) {
      found.back() += line + "\n";
    }
  }
  return found;
}

std::vector<std::string> pages() {
  std::vector<std::string> found;
  for (const auto& folder : {kRoot, kRoot / "docs"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") found.push_back(fs::relative(entry.path(), kRoot).string());
    }
  }
  return found;
}

// Targets of [text](target) that are files of this repository, without their #anchor.
std::vector<std::string> links(const std::string& text) {
  std::vector<std::string> found;
  for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
    const std::string target = text.substr(at + 2, text.find_first_of(")#", at + 2) - at - 2);
    if (!target.empty() && target.find("://") == std::string::npos && target.find(' ') == std::string::npos)
      found.push_back(target);  // excludes C++ lambdas
  }
  return found;
}

// A longer front page would not be read.
TEST(Docs, TheFrontPageIsShort) {
  const std::string page = read(kRoot / "README.md");
  EXPECT_LE(std::count(page.begin(), page.end(), '\n'), 130);
}

TEST(Docs, TheProgramsShownAreThoseThatAreTested) {  // they are tested by tests/package and apps/examples
  const std::string own_loop = read(kRoot / "apps/template/train_tables.cc");
  const std::string our_loop = read(kRoot / "apps/examples/train_dlrm.cc");
  EXPECT_THAT(blocks("docs/cpp_api.md", "cpp"), ::testing::ElementsAre(own_loop, our_loop));
  for (const std::string& source : {own_loop, our_loop}) EXPECT_LE(std::count(source.begin(), source.end(), '\n'), 62);
}

TEST(Docs, ConfigsAreRead) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const Config config = load_config(entry.path().string());
    EXPECT_FALSE(config.plugins.require.empty()) << entry.path() << " names no plugin";
    EXPECT_EQ(config.comm.backend, "tcp") << entry.path();
    ++seen;
  }
  EXPECT_GE(seen, 2);
}

TEST(Docs, MainJobHasTheDocumentedRates) {
  const Config config = load_config((kRoot / "configs/ml-100k.toml").string());
  ASSERT_EQ(config.tables.size(), 9u);
  for (const TableConfig& table : config.tables) {
    EXPECT_EQ(table.optimizer.name, "exact_rowwise_adagrad") << table.name;
    EXPECT_EQ(table.optimizer.options, R"({"learning_rate":0.05,"eps":1e-08})") << table.name;
  }
  EXPECT_EQ(config.dense_optimizer.learning_rate, 0.02);
  EXPECT_EQ(config.data.batch, 128);
}

TEST(Docs, ConfigBlocksAreRead) {
  for (const std::string& page : pages()) {
    for (const std::string& block : blocks(page, "toml")) {
      EXPECT_NO_THROW(parse_config(block, page)) << block;
    }
  }
  EXPECT_FALSE(blocks("README.md", "toml").empty());
}

// All code of the product, with literals that continue on the next line joined, and with quotes unescaped.
std::string all_code() {
  std::string all;
  for (const char* folder : {"core", "apps", "plugins"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string name = entry.path().filename().string();
      if ((name.ends_with(".cc") || name.ends_with(".h")) && !name.ends_with("_test.cc")) all += read(entry.path());
    }
  }
  std::string out;
  for (size_t at = 0; at < all.size(); ++at) {
    if (all[at] == '\\' && at + 1 < all.size() && all[at + 1] == '"') continue;
    if (all[at] == '"') {
      const size_t next = all.find_first_not_of(" \n", at + 1);
      if (next != at + 1 && next != std::string::npos && all[next] == '"') {
        at = next;
        continue;
      }
    }
    out += all[at];
  }
  return out;
}

// The code contains the messages in the first column of the page's tables, with "…" for variable text.
TEST(Docs, MessagesForThePersonOnCallAreSaid) {
  const std::string code = all_code();
  std::istringstream lines(read(kRoot / "docs/operations.md"));
  int messages = 0;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| Message", 0) == 0) inside = true;
    if (line.empty()) inside = false;
    if (!inside || line.rfind("| `", 0) != 0) continue;
    ++messages;
    std::string message = line.substr(3, line.find('`', 3) - 3);
    while (!message.empty()) {
      const std::string mark = "…";
      const size_t end = std::min(message.find(mark), message.size());
      const std::string part = message.substr(0, end);
      EXPECT_NE(code.find(part), std::string::npos) << "said nowhere: " << part << " of " << line;
      message = end == message.size() ? "" : message.substr(end + mark.size());
    }
  }
  EXPECT_GT(messages, 40);
}

TEST(Docs, LinksLeadToFiles) {
  for (const std::string& page : pages()) {
    for (const std::string& target : links(read(kRoot / page))) {
      EXPECT_TRUE(fs::exists((kRoot / page).parent_path() / target)) << page << " links to " << target;
    }
  }
}

}  // namespace
}  // namespace tessera
