// For tests: a table with one feature.
#pragma once

#include <string>

#include "tessera/embedding_configs.h"

namespace tessera::test {

inline EmbeddingBagConfig table(int64_t rows, int64_t cols, const std::string& name = "t") {
  EmbeddingBagConfig t;
  t.name = name;
  t.num_embeddings = rows;
  t.embedding_dim = cols;
  t.feature_names = {"f"};
  return t;
}

}  // namespace tessera::test
