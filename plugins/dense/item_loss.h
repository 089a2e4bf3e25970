// The loss of predicting the next item: compares rows of a sequence with the rows of items.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loops.h"
#include "sequence_moves.h"
#include "split_softmax.h"
#include "weights.h"

namespace tessera_dense {

// Positions of ids among candidates. Ids may repeat.
class IdIndex {
 public:
  // `ids` must outlive the index, or the next take(), unchanged.
  void take(const std::vector<int64_t>& ids);
  // Calls body(candidate) for each candidate in [first, last) with this id.
  template <class Body>
  void each(int64_t id, int64_t first, int64_t last, const Body& body) const {
    auto at = std::lower_bound(order_.begin(), order_.end(), id, [&](int64_t c, int64_t i) { return of(c) < i; });
    for (; at != order_.end() && of(*at) == id; ++at) {
      if (*at >= first && *at < last) body(*at);
    }
  }

 private:
  int64_t of(int64_t candidate) const { return (*ids_)[static_cast<size_t>(candidate)]; }
  const std::vector<int64_t>* ids_ = nullptr;
  std::vector<int64_t> order_;  // candidates by ascending id
};

// "item_loss": compares each row q of a sequence of states with the row of its item and with rows of candidates, by
// z = q . row / temperature. Inputs: states, the items' rows, candidates' rows (unless "negatives" is "in_batch"), the
// items' ids, the candidates' ids. With "weights", a weight of each row follows; with "log_q", ln q of the items and of
// the candidates, as floats or as counts (integers). States may also have one row for each sample. With "split", each
// rank has other candidates. docs/layers.md has the options and formulas.
class ItemLoss : public tessera::sdk::Module {
 public:
  static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
  static constexpr bool kTakesSplit = true;
  explicit ItemLoss(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& buffers() const override { return buffers_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  enum class Shared { kBatch, kSample, kRow, kInBatch };
  // Indices of the inputs that a call may have after the states and the items' rows; 0: it lacks that input.
  struct Places {
    size_t candidates = 0, ids = 0, candidate_ids = 0, weights = 0, log_q = 0, candidate_log_q = 0, count = 0;
  };
  // A row with a loss. Its loss times `factor` is added to its sample's value.
  struct Row {
    int64_t row, sample;
    double weight, factor;
    int64_t id, negatives;
    float log_q;
  };
  // Rows [first, last) that share the candidates [begin, end).
  struct Group {
    int64_t first, last, begin, end;
  };
  struct Context {
    std::vector<double> factors;  // Row::factor of each row
    AllRows all;                  // for a softmax; without "split", only log_sums of this rank's rows
  };
  // Gradients other than those of the states.
  struct Back {
    const float* grads = nullptr;  // gradients of the outputs, read
    float* candidates = nullptr;   // gradients of the candidates' rows, written; NULL if not wanted
  };

  void place_inputs();
  void take(const tessera::sdk::ModuleCall& call);
  void choose_rows(const tessera::sdk::ModuleCall& call);
  void count_items(const tessera::sdk::ModuleCall& call);
  float counted_log_q(const tessera::sdk::ModuleCall& call, int64_t id) const;
  void take_log_q(const tessera::sdk::ModuleCall& call);
  void make_groups(const tessera::sdk::ModuleCall& call);
  void leave_out();
  void weigh(const tessera::sdk::ModuleCall& call);
  // Calls body(group, slot) for each group, on the host's threads.
  template <class Body>
  void each_group(const Body& body);
  Compared compared(const Group& group) const;
  float item_logit(int64_t i) const;
  void run_softmax(const tessera::sdk::ModuleCall& call, AllRows* all);
  void run_softmax_back(const tessera::sdk::ModuleCall& call, const Back& back, const AllRows& all);
  // These compute logistic losses, or with `back` their gradients.
  int64_t rows_at_once(const Group& group) const;
  int64_t scratch_of(const Group& group) const;
  void run_logistic(const Back* back);
  void run_group(const Group& group, const Back* back, float* scratch);
  // Computes the losses of a group's rows [first, last), or with `back` the gradients of logits, states and items.
  void run_rows(const Group& group, int64_t first, int64_t last, const Back* back, float* z);
  // Writes for each row the logit z of its item, then those of the candidates.
  void logits(const Group& group, int64_t first, int64_t last, float* z) const;
  float loss_of(const Row& row, int64_t width, float* z) const;
  void gradients_of(const Row& row, int64_t width, float scale, float* z) const;
  float item_share(const Row& row) const;
  // True if the softmax has the candidates of all ranks.
  bool combines(const tessera::sdk::ModuleCall& call) const { return split_softmax_ && call.sums_over_ranks(); }
  CandidatesHere here() const;
  void give_back(const tessera::sdk::ModuleCall& call) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  Shared shared_ = Shared::kBatch;
  bool softmax_, last_, drop_, weights_, log_q_, correct_item_;
  float scale_;      // 1 / temperature
  double t_ = 0;     // option "t" of gbce; 0 for other losses
  int64_t items_;    // option "items" of gbce; 0 for other losses
  int64_t counted_;  // ids below this are counted for log_q; 0: the layer does not count
  Places places_;
  std::vector<tessera::sdk::Parameter> buffers_;
  ContextPool<Context> contexts_;
  TiledSoftmax tiles_;
  DrawnInputs drawn_;
  std::optional<SplitSoftmax> split_softmax_;  // with "split"

  // The call in progress.
  int64_t width_ = 0, count_ = 0;  // width of a row, number of candidates
  const float* candidates_ = nullptr;
  std::vector<Row> rows_;
  std::vector<Group> groups_;
  std::vector<float> losses_, log_q_of_;  // for each of rows_; for each candidate
  std::vector<int64_t> ids_, row_ids_;    // for each candidate; for each of rows_, with "split"
  std::vector<float> row_factors_;        // for a softmax, the gradients of the rows' losses
  IdIndex index_;
  LeftOut left_out_;  // for each of rows_; positions count from the group's first candidate
  Floats states_, item_rows_, grad_states_, grad_items_, scratch_, fresh_counts_;  // the first four: [rows_, width_]
};

}  // namespace tessera_dense
