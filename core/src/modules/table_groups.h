// Which tables one kernel instance can hold together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/lookup.h"

namespace tessera {

// Could one instance serve both? Everything but the tables is compared.
bool alike(const LookupOptions& a, const LookupOptions& b);

struct TableGroups {
  struct Place {
    size_t group = 0;
    int32_t index = 0;  // among the group's tables
  };
  std::vector<LookupOptions> groups;  // of each kernel instance, with all its tables
  std::vector<Place> places;          // of each table that was asked for
};

// One kernel instance for all tables that are alike, in the order in which the first of each comes. Each of `wanted`
// has one table.
TableGroups group_tables(std::vector<LookupOptions> wanted);
// The same for quantized tables, which only infer.
TableGroups group_quantized(const std::vector<EmbeddingBagConfig>& tables, const std::string& kernel,
                            DType output_dtype = DType::kFloat32);

}  // namespace tessera
