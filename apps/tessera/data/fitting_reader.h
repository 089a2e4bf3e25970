// Which of several reader plugins files are for: text does not say what is between its fields.
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

// The first one, unless it finds one column alone or rows that do not fit the header; then the one of the others that
// finds most columns, and two at least. Where none does, the first one's sentence.
FittingReader fitting_reader(const Runtime& runtime, const std::vector<std::string>& readers, const std::string& path);

// All columns of the files as texts.
std::vector<data::WantedColumn> all_texts(const std::vector<data::FileColumn>& columns);

}  // namespace tessera::cli
