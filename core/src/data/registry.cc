// Readers by name.
#include <algorithm>

#include "data/readers.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

struct ReaderEntry {
  const char* name;
  Dataset (*read)(const DataConfig&, uint64_t seed);
  Dataset (*describe)(const DataConfig&);
  bool divides = false;  // true: it splits off the test rows as data.test says
};

constexpr ReaderEntry kReaders[] = {
    {"criteo-tsv", data::read_criteo, data::describe_criteo, true},
    {"movielens-100k", data::read_movielens_100k, data::describe_movielens_100k},
    {"prepared", data::read_prepared, data::describe_prepared},
    {"synthetic", data::make_synthetic, data::describe_synthetic},
};

void check_keys(const DataConfig& config, const ReaderEntry& reader) {
  if (!config.order_by.empty())
    fail(Code::kInvalidArgument, "data.order_by = \"", config.order_by, "\" is for reader plugins, and \"",
         config.reader, "\" is not one: leave it out");
  if (!reader.divides && !config.test.empty())
    fail(Code::kInvalidArgument, "data.test = \"", config.test, "\" has no effect on \"", config.reader,
         "\", whose data come with a test part: leave it out");
}

}  // namespace

std::vector<std::string> reader_names() {
  std::vector<std::string> names;
  for (const ReaderEntry& reader : kReaders) names.emplace_back(reader.name);
  return names;
}

Dataset read_dataset(const Runtime& runtime, const Config& config, const std::string& encoding) {
  const bool part = std::none_of(std::begin(kReaders), std::end(kReaders),
                                 [&](const ReaderEntry& r) { return config.data.reader == r.name; });
  if (part) return data::read_files(runtime, config, encoding);
  return read_dataset(config.data, static_cast<uint64_t>(config.job.seed));
}

Dataset describe_dataset(const Runtime& runtime, const Config& config, const std::string& encoding) {
  for (const ReaderEntry& reader : kReaders) {
    if (config.data.reader != reader.name) continue;
    check_keys(config.data, reader);
    if (!config.columns.empty())
      fail(Code::kInvalidArgument, "[[column]] \"", config.columns[0].name[0], "\" is for reader plugins, and \"",
           config.data.reader, "\" is not one: leave it out, or set data.reader");
    return reader.describe(config.data);
  }
  return data::describe_files(runtime, config, encoding);
}

Dataset read_dataset(const DataConfig& config, uint64_t seed) {
  for (const ReaderEntry& reader : kReaders) {
    if (config.reader != reader.name) continue;
    check_keys(config, reader);
    return reader.read(config, seed);
  }
  fail(Code::kInvalidArgument, "there is no reader \"", config.reader, "\"; the nearest is \"",
       sdk::nearest_name(config.reader, reader_names()), "\"");
}

namespace data {

ExamplesPtr finish(Examples examples) {
  examples.shrink_to_fit();
  return std::make_shared<const Examples>(std::move(examples));
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
