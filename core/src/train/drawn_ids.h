// Ids that are drawn in each step: candidates of losses and ranks over items.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/planner.h"
#include "tessera/trainer.h"

namespace tessera {

// The drawn features of a job's tables; `tables` are the config's with everything filled in. kInvalidArgument, one
// sentence: an option is unknown or wrong, a table has pooling, or the ids to count are not in memory.
std::vector<DrawnFeature> drawn_features(const Config& config, const std::vector<TableConfig>& tables,
                                         const Dataset& data);

// The column in which a drawn feature's popularity is counted; empty: it draws otherwise.
std::string counted_column(const std::string& feature);

// Tells the planner how many ids per sample a training step draws, for tables whose config has no pooling_factor.
void count_drawn(const std::vector<DrawnFeature>& drawn, const std::vector<TableConfig>& tables,
                 PlannerOptions* options);

class DrawnIds {
 public:
  DrawnIds(std::vector<DrawnFeature> features, uint64_t seed, int rank, int world_size);
  // The batch's ids and those drawn for this step. They depend on seed and step, and those of a sample on its place in
  // the global batch, so that the number of ranks changes nothing. Valid until the next call.
  const KeyedJaggedTensor& add_to(const Batch& batch, bool train, int64_t step);

 private:
  void draw(size_t feature, uint64_t seed, int64_t count);
  std::pair<int64_t, int64_t> own_rows(int64_t rows, int64_t global_size) const;
  void draw_for(size_t feature, const Batch& batch, bool train, int64_t step);

  std::vector<DrawnFeature> features_;
  std::vector<std::vector<double>> sums_;  // of the counts of each feature, added up
  uint64_t seed_;
  int rank_, world_size_;
  std::vector<int64_t> ids_, lengths_;  // drawn
  Tensor values_, bag_lengths_, weights_;
  KeyedJaggedTensor all_;
};

}  // namespace tessera
