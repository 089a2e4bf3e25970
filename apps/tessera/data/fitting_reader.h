// Finds the reader plugin that fits a set of files, because text does not say what separates its fields.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/reader_component.h"

namespace tessera::cli {

struct FittingReader {
  std::string name;
  std::unique_ptr<data::ReaderComponent> files;
};

// Returns the first reader, unless it finds only one column or rows that do not fit the header. Then returns the one of
// the others that finds most columns, at least two. If none does, throws the first one's error.
FittingReader fitting_reader(const Runtime& runtime, const std::vector<std::string>& readers, const std::string& path);

// All columns of the files, requested as texts.
std::vector<data::WantedColumn> all_texts(const std::vector<data::FileColumn>& columns);

}  // namespace tessera::cli
