// Reads or generates the data of a job.
#include <utility>

#include "data/history_reader.h"
#include "data/readers.h"

namespace tessera {
Dataset read_dataset(const Runtime& runtime, const Config& config, const std::string& encoding) {
  if (config.data.reader != data::kGenerated) return data::read_files(runtime, config, encoding);
  return read_dataset(config.data, static_cast<uint64_t>(config.job.seed));
}

Dataset read_unlabelled(const Runtime& runtime, const Config& config, const std::string& encoding) {
  if (config.data.reader != data::kGenerated) return data::read_files(runtime, config, encoding, false);
  return read_dataset(runtime, config, encoding);
}

Dataset describe_dataset(const Runtime& runtime, const Config& config, const std::string& encoding) {
  if (config.data.reader != data::kGenerated) return data::describe_files(runtime, config, encoding);
  data::require_no_test_keys(config.data);
  if (!config.columns.empty())
    fail(Code::kInvalidArgument, "[[column]] \"", config.columns[0].name[0], "\" is for reader plugins, and \"",
         config.data.reader, "\" is not one: leave it out, or set data.reader");
  return data::describe_synthetic(config.data);
}

Dataset read_dataset(const DataConfig& config, uint64_t seed) {
  if (config.reader != data::kGenerated)
    fail(Code::kInvalidArgument, "the reader \"", config.reader,
         "\" is a plugin: read its data with a Runtime, which finds it");
  data::require_no_test_keys(config);
  return data::make_synthetic(config, seed);
}

void read_undivided(Config& config) {
  config.data.test.clear();
  config.data.test_fraction = 0;
  config.history = data::without_split(config.history);
}

namespace data {

ExamplesPtr finish(Examples examples) {
  examples.shrink_to_fit();
  return std::make_shared<const Examples>(std::move(examples));
}

void require_no_test_keys(const DataConfig& config) {
  for (const auto& [key, given] :
       {std::pair("test", !config.test.empty()), std::pair("test_path", !config.test_path.empty()),
        std::pair("order_by", !config.order_by.empty())}) {
    if (given)
      fail(Code::kInvalidArgument, "data.", key, " has no effect: the data of the reader \"", config.reader,
           "\" come with a test part: leave it out");
  }
}

std::vector<int64_t> rows_of(const DataConfig& config, size_t columns) {
  constexpr int64_t kDefaultRows = 100000;
  if (config.rows.empty()) return std::vector<int64_t>(columns, kDefaultRows);
  if (config.rows.size() == 1) return std::vector<int64_t>(columns, config.rows[0]);
  if (config.rows.size() != columns) {
    fail(Code::kInvalidArgument, "data.rows has ", config.rows.size(), " numbers, but reader \"", config.reader,
         "\" has ", columns, columns == 1 ? " column" : " columns", ": give one number for all, or one for each");
  }
  return config.rows;
}

}  // namespace data
}  // namespace tessera
