// The readers that read_dataset() chooses from, and code that they share.
#pragma once

#include <string>
#include <string_view>

#include "data/columns.h"
#include "data/examples.h"
#include "tessera/data.h"

namespace tessera::data {

// The only value of data.reader that is no component: its data are generated.
inline constexpr const char* kGenerated = "synthetic";

Dataset make_synthetic(const DataConfig& config, uint64_t seed);
// Reads through a reader plugin. Without `needs_label` files may lack the label.
Dataset read_files(const Runtime& runtime, const Config& config, const std::string& encoding, bool needs_label = true);

// Describe a data set without reading samples: describe_dataset().
Dataset describe_synthetic(const DataConfig& config);
Dataset describe_files(const Runtime& runtime, const Config& config, const std::string& encoding);
void describe(const Columns& columns, Dataset* set);

// kInvalidArgument: the config chooses test rows or an order for data that have a test part of their own.
void require_no_test_keys(const DataConfig& config);

// data.rows for `columns` columns: one for each, one for all, or the default of 100,000.
std::vector<int64_t> rows_of(const DataConfig& config, size_t columns);

ExamplesPtr finish(Examples examples);

}  // namespace tessera::data
