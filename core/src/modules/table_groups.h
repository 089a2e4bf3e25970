// Decides which tables one kernel instance holds together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/lookup.h"

namespace tessera {

// True if one instance could serve both. Everything except the tables is compared.
bool alike(const LookupOptions& a, const LookupOptions& b);

struct TableGroups {
  struct Place {
    size_t group = 0;
    int32_t index = 0;  // index among the group's tables
  };
  std::vector<LookupOptions> groups;  // for each kernel instance, with all its tables
  std::vector<Place> places;          // by table
};

// Makes one kernel instance for all tables that are alike. Instances are in the order of their first tables. Each of
// `wanted` has one table.
TableGroups group_tables(std::vector<LookupOptions> wanted);
// Does the same for quantized tables, which only infer.
TableGroups group_quantized(const std::vector<EmbeddingBagConfig>& tables, const std::string& kernel,
                            DType output_dtype = DType::kFloat32);

}  // namespace tessera
