// The readers that read_dataset() chooses from, and code that they share.
#pragma once

#include <string>
#include <string_view>

#include "data/columns.h"
#include "data/examples.h"
#include "tessera/data.h"

namespace tessera::data {

Dataset read_prepared(const DataConfig& config, uint64_t seed);
Dataset read_movielens_100k(const DataConfig& config, uint64_t seed);
Dataset read_criteo(const DataConfig& config, uint64_t seed);
Dataset make_synthetic(const DataConfig& config, uint64_t seed);
// Reads through a reader plugin. Without `needs_label` files may lack the label.
Dataset read_files(const Runtime& runtime, const Config& config, const std::string& encoding, bool needs_label = true);

// Describe a data set without reading samples: describe_dataset().
Dataset describe_prepared(const DataConfig& config);
Dataset describe_movielens_100k(const DataConfig& config);
Dataset describe_criteo(const DataConfig& config);
Dataset describe_synthetic(const DataConfig& config);
Dataset describe_files(const Runtime& runtime, const Config& config, const std::string& encoding);
void describe(const Columns& columns, Dataset* set);

// Adds one line of prepared text as a sample. Errors, and Examples::bad_id(), begin with "file:line".
void add_prepared_line(std::string_view text, const std::string& file, int64_t line, Examples& examples);

// Parses name, dense and columns from the text of a meta.json, which errors call `file`. train and test stay empty.
Dataset parse_meta(const std::string& text, const std::string& file);

// data.rows for `columns` columns: one for each, one for all, or the default of 100,000.
std::vector<int64_t> rows_of(const DataConfig& config, size_t columns);

ExamplesPtr finish(Examples examples);

}  // namespace tessera::data
