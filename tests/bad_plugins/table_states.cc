// bad.by_table: SGD whose rate falls with the number of steps of the table, a state that its rows share.
#include "tessera/sdk/optimizer.h"

namespace {

using namespace tessera::sdk;

class ByTable : public Optimizer {
 public:
  explicit ByTable(Options& options) : learning_rate_(options.number("learning_rate", 0.01)) {}
  double learning_rate() const { return learning_rate_; }
  std::vector<State> states() const {
    return {{"sum", TSR_STATE_PER_ELEMENT}, {"steps", TSR_STATE_PER_TABLE, 1}, {"updates", TSR_STATE_PER_ROW}};
  }
  void update_table(const tsr_update&, float* const* states) const noexcept { states[1][0] += 0.5f; }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* states) const noexcept {
    const float rate = static_cast<float>(update.learning_rate) / states[1][0];
    for (int64_t d = 0; d < dim; ++d) weight[d] -= rate * (states[0][d] += grad[d]);
    states[2][0] += 1;
  }

 private:
  double learning_rate_;
};

}  // namespace

TESSERA_PLUGIN("bad-table-states", "1.0.0",
               component<ByTable>({.id = "bad.by_table", .version = "1.0.0", .about = "a rate that its steps lower"}));
