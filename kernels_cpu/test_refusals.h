// Helpers for tests of kernels with fused updates: expectations of what each of them refuses.
#pragma once

#include "test_support.h"

namespace tessera_cpu::test {

inline void expect_unknown_row_refused(TestHost& host, const char* path, const char* id) {
  Options o;
  o.tables = {{3, 4}};
  Model model(host, path, id, o);
  model.open();
  Array ids(kI64, 2), weights(kF32, 8);
  ids.set(0, 1);
  ids.set(1, 3);
  weights.set(0, 5);
  const tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, 2, &ids.tensor, &weights.tensor, nullptr, nullptr};
  Error error;
  EXPECT_EQ(model.api->import_rows(model.instance, 0, &rows, &error), TSR_OUT_OF_RANGE);
  EXPECT_NE(std::string(error.message).find("no row 3"), std::string::npos) << error.message;
  EXPECT_EQ(model.rows_of(0), std::vector<float>(12, 0.0f)) << "nothing is changed";
}

// A change that makes a good config bad, and words of the refusal.
struct BadConfig {
  const char* words;
  std::function<void(Options&)> change;
};
// Expects refusals of configs that no kernel serves, of `more`, and of memory of a device that the kernel does not
// know.
inline void expect_bad_configs_refused(TestHost& host, const char* path, const char* id,
                                       const std::vector<BadConfig>& more = {}) {
  std::vector<BadConfig> all = {
      {"only fused, dense", [](Options& o) { o.compute_kernel = "quant"; }},
      {"optimizer \"none\" updates none", [](Options& o) { o.optimizer = "none"; }},
      {"no optimizer is given", [](Options& o) { o.optimizer = ""; }},
      {"the type of rows", [](Options& o) { o.weight_dtype = kI32; }},
      {"the type of outputs", [](Options& o) { o.output_dtype = kI64; }},
      {"has -1 rows", [](Options& o) { o.tables[0].rows = -1; }},
      {"of 0 columns", [](Options& o) { o.tables[0].dim = 0; }},
      {"max_gradient", [](Options& o) { o.max_gradient = -1; }},
  };
  all.insert(all.end(), more.begin(), more.end());
  Options good;
  good.tables = {{3, 4}};
  Error error;
  for (const BadConfig& bad : all) {
    Options o = good;
    bad.change(o);
    EXPECT_NE(Model(host, path, id, o).supports(error), TSR_OK) << bad.words;
    EXPECT_NE(std::string(error.message).find(bad.words), std::string::npos) << error.message;
  }
  Model model(host, path, id, good);
  model.config.device = {kDLCUDA, 0};
  EXPECT_EQ(model.supports(error), TSR_UNIMPLEMENTED);
}

}  // namespace tessera_cpu::test
