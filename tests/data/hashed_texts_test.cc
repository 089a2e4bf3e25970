// Texts hashed to rows: by XXH64, as docs/data.md describes, and by the older hash for older models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "data/test_files.h"
#include "data/xxh64.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/runtime.h"
#include "tessera/sdk/fields.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Xxh64, IsThatOfTheLibrary) {
  EXPECT_EQ(data::xxh64(""), 0xef46db3751d8e999u);
  EXPECT_EQ(data::xxh64("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(data::xxh64("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(data::xxh64("68fd1e64"), 0x5d3ccd85c9c22fe4u);
  EXPECT_EQ(data::xxh64("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
}

// The table of docs/data.md, which the Python code there prints.
TEST(Xxh64, RowsOfTheDataPage) {
  std::ifstream page(std::string(TESSERA_SOURCE_DIR) + "/docs/data.md");
  int hashed = 0;
  for (std::string line; std::getline(page, line);) {
    std::smatch row;
    if (!std::regex_match(line, row, std::regex(R"(\| `hash` of `([^`]*)` \| (\d+) \| (\d+) \|)"))) continue;
    EXPECT_EQ(data::xxh64(row[1].str()) % std::stoull(row[2]), std::stoull(row[3])) << line;
    ++hashed;
  }
  EXPECT_EQ(hashed, 4);
}

class HashedTexts : public testing::Test {
 protected:
  Dataset read(const std::string& encoding = "") const {
    const std::string job = str_cat(R"(
column = [
  {name = "click", as = "label"},
  {name = "user", ids = "hash", rows = 1000},
  {name = "hour", rows = 24},
  {name = "both", cross = ["hour", "user"], rows = 5000}]
data = {reader = "csv", test_fraction = 0, path = ")",
                                    directory_.path(), "/a.csv\"}");
    directory_.write("a.csv", "click,user,hour\n1,u1,17\n0,Amélie,4\n");
    return read_dataset(runtime_, parse_config(job, "job.toml"), encoding);
  }
  static std::vector<int32_t> ids(const Dataset& set) {
    Batch batch;
    EXPECT_TRUE(BatchReader(set.train, {.batch = 2}).next(batch));
    return batch.sparse.values().to_vector<int32_t>();
  }
  static int32_t xxh(const std::string& text, uint64_t rows) { return static_cast<int32_t>(data::xxh64(text) % rows); }

  data::TestDirectory directory_;
  Runtime runtime_{{.plugin_path = {TESSERA_PLUGINS_BUILT}}};
};

TEST_F(HashedTexts, OfANewModelAreXxh64) {
  const Dataset set = read();
  const auto user = xxh("u1", 1000), other = xxh("Amélie", 1000);
  EXPECT_THAT(ids(set), ElementsAre(user, other, 17, 4, xxh(str_cat("17 ", user, ' '), 5000),
                                    xxh(str_cat("4 ", other, ' '), 5000)));
  EXPECT_EQ(ordered_json::parse(set.encoding)["hash"], "xxh64");
  EXPECT_EQ(ids(read(set.encoding)), ids(set));
}

TEST_F(HashedTexts, OfAnOlderModelStayWhatTheyWere) {
  ordered_json encoding = ordered_json::parse(read().encoding);
  encoding.erase("hash");
  const Dataset set = read(encoding.dump());
  const auto user = sdk::row_of("user=", "u1", 1000), other = sdk::row_of("user=", "Amélie", 1000);
  EXPECT_THAT(ids(set), ElementsAre(user, other, 17, 4, sdk::row_of("both=", str_cat("17 ", user, ' '), 5000),
                                    sdk::row_of("both=", str_cat("4 ", other, ' '), 5000)));
  EXPECT_EQ(set.encoding, encoding.dump());
  encoding["hash"] = "md5";
  EXPECT_THAT(test::refusal([&] { (void)read(encoding.dump()); }),
              HasSubstr("hashes texts by \"md5\", which this version does not know"));
}

}  // namespace
}  // namespace tessera
