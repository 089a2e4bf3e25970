// Jobs with dynamic tables (docs/dynamic_tables.md) whose ids are any 64-bit numbers, or hashes of texts. A job
// continues from a checkpoint as if it had never ended, also on other numbers of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "dynamic_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera/sdk/random.h"
#include "tessera_program.h"

namespace tessera::test::dynamic_checkpoint_test {
namespace {

using nlohmann::json;

using sdk::mixed;

// Ids of 63 bits, some of them popular.
int64_t id_of(int64_t sample) {
  const uint64_t x = mixed(static_cast<uint64_t>(sample) + 1);
  const uint64_t which = x % 4 != 0 ? x / 4 % 150 : x / 4 % 3000;
  return static_cast<int64_t>(mixed(which + 77) >> 1);
}

// A job over two dynamic tables, one with raw ids and one with hashes of texts.
std::string job(const TestDirectory& folder) {
  std::string rows = "label,price,item,shop\n";
  for (int64_t i = 0; i < 1600; ++i)
    rows += str_cat(id_of(i) % 2, ',', i % 5, ',', id_of(i), ",shop-", mixed(static_cast<uint64_t>(i)) % 60, "\n");
  return dynamic_job(folder, rows, R"(any_id = true
[[table]]
name = "item"
rows = 200
compute_kernel = "dynamic?evict=lfu&admit_after=2"
sharding = ["hash"]
[[table]]
name = "shop"
rows = 20
compute_kernel = "dynamic"
sharding = ["column_wise"]
min_partition = 4
)",
                     R"(
column = [
  {name = "label", as = "label"},
  {name = "price", as = "dense"},
  {name = "item", as = "ids"},
  {name = "shop", as = "ids", ids = "hash"}]
)");
}

// Tensors of a safetensors file: bytes and rows.
struct Stored {
  std::string bytes;
  int64_t rows;
};
std::map<std::string, Stored> tensors(const std::string& path) {
  const std::string file = contents(path);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  std::map<std::string, Stored> out;
  const json head = json::parse(file.substr(8, header));
  for (const auto& [name, tensor] : head.items()) {
    if (name == "__metadata__") continue;
    const auto begin = tensor["data_offsets"][0].get<uint64_t>(), end = tensor["data_offsets"][1].get<uint64_t>();
    out[name] = {file.substr(8 + header + begin, end - begin),
                 tensor["shape"].empty() ? 1 : tensor["shape"][0].get<int64_t>()};
  }
  return out;
}

// The rows of a table in a checkpoint, by id: each row's bytes in one tensor.
std::map<int64_t, std::string> rows_of(const std::string& save, const std::string& table, const std::string& tensor) {
  const auto model = tensors(save + "/model.safetensors"), states = tensors(save + "/optimizer.safetensors");
  const std::string name = str_cat("sparse_arch.embedding_bag_collection.embedding_bags.", table, ".weight");
  const Stored& keys = model.at(str_cat(name, "/", table, ".keys"));
  const Stored& values = tensor.empty() ? model.at(name) : states.at(str_cat(name, "/", table, ".", tensor));
  EXPECT_EQ(values.rows, keys.rows);
  const size_t width = values.bytes.size() / static_cast<size_t>(std::max<int64_t>(1, values.rows));
  std::map<int64_t, std::string> out;
  for (int64_t i = 0; i < keys.rows; ++i) {
    int64_t id = 0;
    std::memcpy(&id, keys.bytes.data() + i * 8, sizeof(id));
    EXPECT_TRUE(out.emplace(id, values.bytes.substr(static_cast<size_t>(i) * width, width)).second) << id;
  }
  return out;
}

std::string newest(const std::string& saves) {
  int number = 0;
  for (const auto& entry : std::filesystem::directory_iterator(saves))
    number = std::max(number, std::atoi(entry.path().filename().string().substr(5).c_str()));  // N of save-N
  return str_cat(saves, "/save-", number);
}

class DynamicCheckpoints : public testing::Test, protected JobFile {
 protected:
  Stopped stopped(const std::string& save) {
    return stopped_behind_changes({tessera_path(), "train", "--config", config_, "--nproc", "2"}, save);
  }
  std::string at(const std::string& name) const { return folder_.file(name); }

  const std::string config_ = job(folder_);
};

TEST_F(DynamicCheckpoints, AJobGoesOnBitByBit) {
  const json whole = trained(2, {"--save", at("whole")});
  ASSERT_TRUE(whole.is_object());
  EXPECT_GT(whole.at("tables").at("item").at("evictions"), 20);
  EXPECT_GT(whole.at("tables").at("shop").at("evictions"), 20);
  // Saves during training in between, with checkpoints that grow from save to save.
  trained(2, {"--save", at("parts"), "--max-steps", "33", "--save-every", "5"});
  const json resumed = trained(2, {"--save", at("parts"), "--resume"});
  ASSERT_TRUE(resumed.is_object());
  for (const char* metric : {"auc", "logloss"})
    EXPECT_EQ(resumed.at("test").at(metric).dump(), whole.at("test").at(metric).dump()) << metric;
  for (const char* table : {"item", "shop"}) {
    for (const char* tensor : {"", "momentum1", "extra"})
      EXPECT_EQ(rows_of(newest(at("parts")), table, tensor), rows_of(newest(at("whole")), table, tensor))
          << table << tensor;
  }
  // Ids have 63 bits as in the files, and the texts' hashes are as long.
  int64_t largest = 0;
  for (const auto& [id, row] : rows_of(newest(at("whole")), "shop", "")) largest = std::max(largest, id);
  EXPECT_GT(largest, int64_t{1} << 60);
  std::set<int64_t> given;
  for (int64_t i = 0; i < 1600; ++i) given.insert(id_of(i));
  for (const auto& [id, row] : rows_of(newest(at("whole")), "item", "")) EXPECT_TRUE(given.contains(id)) << id;
}

// The data that lru keeps per row does not say how often it was seen. The message names both policies, and a way out.
TEST_F(DynamicCheckpoints, AnotherPolicyIsRefused) {
  trained(1, {"--save", at("lfu"), "--max-steps", "3"});
  const std::string lru = "table.item.compute_kernel=\"dynamic?evict=lru&admit_after=2\"";
  expect_refused({"train", "--config", config_, "--load", at("lfu"), "--set", lru},
                 testing::AllOf(testing::HasSubstr(R"(table "item" has the kernel "dynamic?evict=lru&admit_after=2")"),
                                testing::HasSubstr(R"(it had "dynamic?evict=lfu&admit_after=2" in )"),
                                testing::HasSubstr("load it with that kernel and its options, or begin a new run")));
  trained(1, {"--start", at("lfu"), "--max-steps", "3", "--set", lru});
}

TEST_F(DynamicCheckpoints, OtherRanksHaveTheSameRowsAndEvictTheSame) {
  trained(2, {"--save", at("half"), "--max-steps", "40"});
  const json two = trained(2, {"--load", at("half"), "--save", at("two")});
  ASSERT_TRUE(two.is_object());
  const auto keys = rows_of(at("two") + "/save-1", "item", "extra");
  EXPECT_NE(keys, rows_of(at("half") + "/save-1", "item", "extra"));
  for (const int ranks : {1, 4}) {
    SCOPED_TRACE(ranks);
    const json other = trained(ranks, {"--load", at("half"), "--save", at(str_cat(ranks))});
    ASSERT_TRUE(other.is_object());
    EXPECT_NEAR(other.at("test").at("logloss").get<double>(), two.at("test").at("logloss").get<double>(), 1e-4);
    EXPECT_EQ(rows_of(at(str_cat(ranks)) + "/save-1", "item", "extra"), keys);
    EXPECT_EQ(other.at("tables").at("item").at("evictions"), two.at("tables").at("item").at("evictions"));
  }
}

// Checkpoints of changes: rows that changed or were sighted, and ids that have lost theirs. Loading one gives the same
// as loading a checkpoint with all rows of the same step, and so does training on.
TEST_F(DynamicCheckpoints, ChangesAreTheTableToo) {
  const Stopped last = stopped(at("often"));
  trained(2, {"--save", at("once"), "--max-steps", str_cat(last.step), "--set", kWithoutEnd});
  const std::string all = at("once") + "/save-1";
  const json content = json::parse(contents(last.changes + "/checkpoint.json")).at("content");
  EXPECT_EQ(content.at("base").at("name"), "save-1");
  int64_t lost = 0;
  for (const json& table : content.at("tables")) {
    const auto name = table.at("name").get<std::string>();
    EXPECT_TRUE(table.at("changes").get<bool>()) << name;
    const auto now = rows_of(all, name, "extra");
    const auto gone = std::ranges::count_if(rows_of(at("often") + "/save-1", name, "extra"),
                                            [&](const auto& row) { return !now.contains(row.first); });
    EXPECT_GE(table.at("removed").get<int64_t>(), gone) << name;  // some may have come and gone since the base
    lost += gone;
  }
  EXPECT_GT(lost, 0);
  EXPECT_THAT(one_line(run_tessera({"model", "inspect", last.changes, "--verify"}).output),
              testing::HasSubstr(" rows are new or changed, "));

  trained(2, {"--load", last.changes, "--save", at("again"), "--max-steps", str_cat(last.step), "--set", kWithoutEnd});
  for (const char* table : {"item", "shop"}) {
    for (const char* tensor : {"", "momentum1", "extra"})
      EXPECT_EQ(rows_of(at("again") + "/save-1", table, tensor), rows_of(all, table, tensor)) << table << tensor;
  }
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const auto on = [&](const std::string& from, const std::string& to) {
      return trained(ranks,
                     {"--load", from, "--save", at(to), "--max-steps", str_cat(last.step + 40), "--set", kWithoutEnd});
    };
    const json a = on(last.changes, "a"), b = on(all, "b");
    ASSERT_TRUE(a.is_object() && b.is_object());
    EXPECT_EQ(a.at("tables").at("item").at("evictions"), b.at("tables").at("item").at("evictions"));
    for (const char* metric : {"auc", "logloss"})
      EXPECT_EQ(a.at("test").at(metric).dump(), b.at("test").at(metric).dump()) << metric;
    for (const char* table : {"item", "shop"}) {
      for (const char* tensor : {"", "momentum1", "extra"})
        EXPECT_EQ(rows_of(newest(at("a")), table, tensor), rows_of(newest(at("b")), table, tensor)) << table << tensor;
    }
  }
  for (const auto& [from, to] : {std::pair(last.changes, "p"), std::pair(all, "q")}) {
    ASSERT_EQ(run_tessera({"quantize", "--load", from, "--save", at(to), "--weights", "fp32"}).status, 0);
    succeed(run_tessera(
        {"predict", "--model", at(to), "--config", config_, "--part", "test", "--output", at(to) + ".csv"}));
  }
  EXPECT_EQ(contents(at("p") + ".csv"), contents(at("q") + ".csv"));
}

// A new run begins with the existing rows, by their ids, on any number of ranks; also from a checkpoint of changes.
TEST_F(DynamicCheckpoints, AnotherRunBeginsWithTheirRows) {
  const Stopped last = stopped(at("often"));
  trained(2, {"--save", at("saved")});
  const auto begun = [&](int ranks, const std::string& from, std::vector<std::string> more) {
    more.insert(more.end(), {"--start", from, "--max-steps", "0", "--save", at(str_cat(ranks, "-begun"))});
    std::filesystem::remove_all(at(str_cat(ranks, "-begun")));
    return trained(ranks, more);
  };
  for (const std::string& from : {last.changes, at("saved") + "/save-1"}) {
    const std::string whole = at(str_cat("whole", from == last.changes));
    const json of = trained(1, {"--load", from, "--max-steps", str_cat(from == last.changes ? last.step : 80), "--save",
                                whole, "--set", kWithoutEnd});
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(str_cat(from, " on ", ranks));
      const json report = begun(ranks, from, {"--set", "table_defaults.optimizer.name=exact_adagrad"});
      ASSERT_TRUE(report.is_object());
      EXPECT_EQ(report.at("start").size(), 1u) << report.at("start");
      EXPECT_THAT(report.at("start").dump(), testing::HasSubstr("begins with 2 of 2 tables and "));
      const std::string own = at(str_cat(ranks, "-begun")) + "/save-1", all = whole + "/save-1";
      for (const char* table : {"item", "shop"}) EXPECT_EQ(rows_of(own, table, ""), rows_of(all, table, "")) << table;
      EXPECT_NEAR(report.at("test").at("logloss").get<double>(), of.at("test").at("logloss").get<double>(), 1e-6);
    }
  }
  const std::string newest_save = newest(at("saved"));
  const json small = begun(2, newest_save, {"--set", "table.item.rows=128"});
  EXPECT_THAT(small.at("start").dump(), testing::HasSubstr("rows have room here, the others start again"));

  // Moves rows between a table of all ids and one whose ids have a bound.
  const std::vector<std::string> bounded{"--set", "table.shop.any_id=false", "--set", "table.shop.rows=300"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), bounded.begin(), bounded.end());
    return more;
  };
  const std::vector<std::string> fixed = with({"--set", "table.shop.compute_kernel=fused"}),
                                 dynamic = with({"--set", "table.shop.compute_kernel=dynamic?capacity=200"});
  auto save = [&](const std::string& to, std::vector<std::string> more) {
    more.insert(more.end(), {"--save", at(to), "--max-steps", "20"});
    return trained(2, more);
  };
  save("fixed", fixed);
  const json there = begun(2, at("fixed"), with({"--set", "table.shop.compute_kernel=dynamic?capacity=300"}));
  ASSERT_TRUE(there.is_object());
  EXPECT_EQ(there.at("start").size(), 1u) << there.at("start");
  save("dynamic", dynamic);
  const json here = begun(2, at("dynamic"), fixed);
  ASSERT_TRUE(here.is_object());
  EXPECT_THAT(here.at("start").dump(), testing::HasSubstr(" of 300 rows are there, the others start again"));
}

// Fill, hits and ages of the table of 200 rows on two ranks, each of which has all buckets and uses its own.
void expect_figures(const std::string& shown, const json& report) {
  const json& item = report.at("tables").at("item");
  EXPECT_THAT(shown,
              testing::HasSubstr(str_cat("item: ", item.at("rows_in_use").get<int64_t>(), " of 200 rows in use (")));
  EXPECT_THAT(shown, testing::HasSubstr(str_cat(", ", item.at("evictions").get<int64_t>(),
                                                " evicted; half were seen in the newest ")));
  const size_t at = shown.find(" % of ", shown.find("item: "));
  ASSERT_NE(at, std::string::npos) << shown;
  const double share = std::stod(shown.substr(shown.rfind(' ', at - 1) + 1));
  EXPECT_GT(share, 20);
  EXPECT_LT(share, 100);
}

TEST_F(DynamicCheckpoints, PackedModelsFindRowsByTheirIds) {
  const json report = trained(2, {"--save", at("saved")});
  ASSERT_TRUE(report.is_object());
  const double trained_loss = report.at("test").at("logloss").get<double>();
  const Finished checkpoint = run_tessera({"model", "inspect", at("saved"), "--verify"});
  EXPECT_EQ(checkpoint.status, 0) << checkpoint.output;
  EXPECT_THAT(one_line(checkpoint.output), testing::HasSubstr(", a checkpoint after step "));
  expect_figures(one_line(checkpoint.output), report);
  for (const auto& [format, bound] : {std::pair("fp32", 1e-6), std::pair("int8", 1e-2)}) {
    const std::string model = at(format), scores = at("scores.csv");
    succeed({"quantize", "--load", at("saved"), "--save", model, "--weights", format});
    const std::string inspected = succeed({"model", "inspect", model, "--verify"});
    EXPECT_THAT(inspected, testing::HasSubstr("item: an index of "));
    expect_figures(one_line(inspected), report);
    succeed({"predict", "--model", model, "--config", config_, "--part", "test", "--output", scores});
    EXPECT_NEAR(logloss_of(scores), trained_loss, bound) << format;
  }
  // Unseen ids are not an error: they all read as zeros.
  const std::string data =
      folder_.write("unseen.csv", "label,price,item,shop\n0,1,5,nowhere\n0,1,9223372036854775806,nor there\n");
  const Finished unseen = run_tessera({"predict", "--model", at("fp32"), "--data", data, "--output", at("unseen")});
  ASSERT_EQ(unseen.status, 0) << unseen.output;
  const std::string text = contents(at("unseen"));
  const size_t first = text.find("\n0,") + 3, second = text.find("\n1,") + 3;
  EXPECT_EQ(text.substr(first, 10), text.substr(second, 10)) << text;
  // Tests damaged files.
  const std::string keys = at("fp32") + "/table-0.keys";
  std::string bytes = contents(keys);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(keys, std::ios::binary) << bytes;
  expect_refused({"model", "inspect", at("fp32"), "--verify"}, testing::HasSubstr("table-0.keys is damaged"), 1);
}

TEST_F(DynamicCheckpoints, WhatDoesNotFitIsSaid) {
  // Ids with a bound, as in a static table.
  const std::vector<std::string> bounded{"--set", "table.shop.any_id=false", "--set", "table.shop.rows=300"};
  trained(1, Arguments{"--save", at("saved"), "--max-steps", "20", "--set",
                       "table.shop.compute_kernel=dynamic?capacity=20"} +
                 bounded);
  const auto refused = [&](std::vector<std::string> more) {
    const Finished done = run_tessera(Arguments{"train", "--config", config_} + more);
    EXPECT_NE(done.status, 0) << done.output;
    return done.output;
  };
  EXPECT_THAT(refused(Arguments{"--load", at("saved"), "--set", "table.shop.compute_kernel=fused"} + bounded),
              testing::HasSubstr("the rows of table \"shop\" were created on demand in "));
  EXPECT_THAT(refused({"--set", "table.shop.compute_kernel=fused"}),
              testing::HasSubstr("with any_id a row comes when its id does"));
  EXPECT_THAT(refused({"--nproc", "2", "--set", "table.item.sharding=[\"row_wise\"]"}),
              testing::HasSubstr("on cpu, because ids of any_id have no ranges to split"));
  EXPECT_THAT(refused({"--set", "table.item.rows=0"}),
              testing::HasSubstr("table \"item\" takes any id: set rows to the number of rows that it may have"));
}

}  // namespace
}  // namespace tessera::test::dynamic_checkpoint_test
