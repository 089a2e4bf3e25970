// tessera/unknown_ids.h - how many ids of rows a model's vocabularies do not have.
//
//   UnknownIdCounter counter(dataset.encoding);
//   for (Batch batch; reader.next(batch);) counter.add(batch.sparse);
//   for (const UnknownIds& ids : counter.counts()) puts(ids.warning().c_str());
//
// A value that a vocabulary does not have is row 0 of its table, whatever it is: a few are ordinary, and if nearly all
// are, then the data are not what the model was trained on, or are written in another way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/jagged_tensor.h"

namespace tessera {

struct UnknownIds {
  std::string column;
  int64_t ids = 0, unknown = 0;

  // True if all of them are unknown, or at least half of 20 or more.
  bool are_many() const;
  // "user: 100 % of the 1200 ids were not in the vocabulary"; empty unless are_many().
  std::string warning() const;
};

class UnknownIdCounter {
 public:
  // `encoding`: of a Dataset or a ModelDescription; empty: there is no vocabulary.
  explicit UnknownIdCounter(const std::string& encoding);

  // Counts the features that are columns with a vocabulary; int64 or int32.
  void add(const KeyedJaggedTensor& sparse);
  const std::vector<UnknownIds>& counts() const { return counts_; }  // of columns with a vocabulary, in their order

 private:
  std::vector<UnknownIds> counts_;
};

}  // namespace tessera
