// tessera data check: compares new files with those that a model was trained on.
#pragma once

#include <string>
#include <vector>

#include "data/file_look.h"
#include "page/page_file.h"

namespace tessera::cli {

struct Difference {
  std::string column;    // empty: of the files as a whole
  std::string sentence;  // "12 % of the values are not in the training files: "u901", "u902", ..."
};

// Lists what may spoil a model's answers, in the columns' order: columns that are missing, values of another form, more
// missing values, values that were never seen, and distributions that have moved. `labels`: columns that new files need
// not have.
std::vector<Difference> differences(const FilesSeen& train, const FilesSeen& now,
                                    const std::vector<std::string>& labels);

// The same as the parts of a page, with the distributions of both files side by side.
PageParts differences_page(const FilesSeen& train, const FilesSeen& now, const std::vector<Difference>& all,
                           const std::string& about);

// A sentence if many new rows are rows of the training files, which have few copies themselves; else empty. It is no
// difference.
std::string copies_sentence(const FilesSeen& train, const FilesSeen& now);

}  // namespace tessera::cli
