// The start values and dropouts that the presets of sequence models declare (configs/models).
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tessera/config.h"

namespace tessera {
namespace {

struct PresetCase {
  const char* preset;
  std::optional<double> init_range;                // of all tables
  std::map<std::string, std::string> with_option;  // layers, by option and value
};

// Rows of N(0, 0.02) have a uniform range of 0.02 sqrt(3). BERT's mask_rows hides a fifth of the rows.
const PresetCase kPresetCases[] = {
    {"sasrec",
     {},
     {{"scale=4.0", "placed"},
      {"rate=0.1", "start dropped1 dropped2"},
      {"dropout=0.1", "attention1 forward1 attention2 forward2"}}},
    {"esasrec",
     {},
     {{"rate=0.1", "start kept1 kept_swiglu1 dropped1 kept2 kept_swiglu2 dropped2"},
      {"dropout=0.1", "attention1 attention2"}}},
    {"bert4rec",
     0.0346,
     {{"rate=0.2", "hidden"},
      {"rate=0.1", "start kept1 dropped1 kept2 dropped2"},
      {"dropout=0.1", "attention1 attention2"},
      {"init_std=0.02", "q1 k1 v1 out1 forward1 q2 k2 v2 out2 forward2"}}},
    {"hstu",
     0.0346,
     {{"scale=4.0", "placed"},
      {"rate=0.1", "start kept1 kept2"},
      {"scale=1.0", "attention1 attention2"},
      {"init_std=0.02", "all1 all2"}}},
    {"bst", {}, {{"scale=0.2", "placed"}, {"rate=0.1", "kept1 dropped1"}}},
};

TEST(Presets, DeclareStartValuesAndDropouts) {
  for (const PresetCase& want : kPresetCases) {
    const Config config = load_config(str_cat(TESSERA_CONFIGS "/models/", want.preset, ".toml"));
    EXPECT_EQ(config.table_defaults.init_range, want.init_range) << want.preset;
    for (const TableConfig& table : config.tables) EXPECT_EQ(table.init_range, want.init_range) << want.preset;
    std::map<std::string, std::string> got;
    for (const LayerConfig& layer : config.layers) {
      const auto options = nlohmann::json::parse(layer.options.json);
      for (const char* key : {"rate", "dropout", "scale", "init_std"}) {
        if (!options.contains(key)) continue;
        std::string& names = got[str_cat(key, "=", options.at(key).dump())];
        names += (names.empty() ? "" : " ") + layer.name;
      }
    }
    EXPECT_EQ(got, want.with_option) << want.preset;
  }
}

}  // namespace
}  // namespace tessera
