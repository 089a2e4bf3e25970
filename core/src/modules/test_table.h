// For tests: a table with one feature.
#pragma once

#include <string>

#include "tessera/embedding_configs.h"

namespace tessera::test {

inline EmbeddingBagConfig table(int64_t rows, int64_t cols, const std::string& name = "t") {
  return {.name = name, .num_embeddings = rows, .embedding_dim = cols, .feature_names = {"f"}};
}

}  // namespace tessera::test
