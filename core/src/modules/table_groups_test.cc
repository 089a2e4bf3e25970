#include "modules/table_groups.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

LookupOptions one(const std::string& name, const std::string& compute_kernel, DType dtype = DType::kFloat32) {
  return {.compute_kernel = compute_kernel, .weight_dtype = dtype, .tables = {{name, 10, 4}}};
}

TEST(TableGroups, TablesThatAreAlikeShareAnInstance) {
  const TableGroups grouped = group_tables(
      {one("a", "fused"), one("b", "dense"), one("c", "fused"), one("d", "fused", DType::kFloat16), one("e", "dense")});
  ASSERT_EQ(grouped.groups.size(), 3u);
  std::string text;
  for (const TableGroups::Place& at : grouped.places)
    text += grouped.groups[at.group].tables[static_cast<size_t>(at.index)].name + std::to_string(at.group) + " ";
  EXPECT_EQ(text, "a0 b1 c0 d2 e1 ");
}

TEST(TableGroups, EveryOptionButTheTablesCounts) {
  const LookupOptions base = one("a", "fused");
  LookupOptions other = one("b", "fused");
  EXPECT_TRUE(alike(base, other));
  other.optimizer.name = "exact_sgd";
  EXPECT_FALSE(alike(base, other));
  for (const auto& change : std::vector<void (*)(LookupOptions&)>{
           [](LookupOptions& o) { o.kernel = "cpu"; }, [](LookupOptions& o) { o.train = false; },
           [](LookupOptions& o) { o.weight_dtype = DType::kFloat16; },
           [](LookupOptions& o) { o.output_dtype = DType::kFloat16; },
           [](LookupOptions& o) { o.row_format = RowFormat::kInt8; }}) {
    LookupOptions changed = base;
    change(changed);
    EXPECT_FALSE(alike(base, changed));
  }
}

}  // namespace
}  // namespace tessera
