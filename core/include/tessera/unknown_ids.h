// tessera/unknown_ids.h - counts ids that are not in a model's vocabularies.
//
//   UnknownIdCounter counter(dataset.encoding);
//   for (Batch batch; reader.next(batch);) counter.add(batch.sparse);
//   for (const UnknownIds& ids : counter.counts()) puts(ids.warning().c_str());
//
// A value that is not in a vocabulary becomes row 0 of its table. A few are ordinary. If nearly all are unknown, the
// data differ from the training data, or are written in another way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/jagged_tensor.h"

namespace tessera {

struct UnknownIds {
  std::string column;
  int64_t ids = 0, unknown = 0;

  // True if all ids are unknown, or at least half of 20 or more.
  bool are_many() const;
  // "user: 100 % of the 1200 ids were not in the vocabulary"; empty unless are_many().
  std::string warning() const;
};

class UnknownIdCounter {
 public:
  // `encoding`: that of a Dataset or a ModelDescription; empty: there is no vocabulary.
  explicit UnknownIdCounter(const std::string& encoding);

  // Counts the features that are columns with a vocabulary; int64 or int32.
  void add(const KeyedJaggedTensor& sparse);
  const std::vector<UnknownIds>& counts() const { return counts_; }  // of columns with a vocabulary, in their order

 private:
  std::vector<UnknownIds> counts_;
};

}  // namespace tessera
