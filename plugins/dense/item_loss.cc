#include "item_loss.h"

#include <array>
#include <cmath>
#include <numeric>

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

constexpr const char* kItemLoss = "item_loss";
constexpr int64_t kRowsTogether = 128;         // rows whose logits are one product
constexpr int64_t kCandidatesTogether = 1024;  // candidates whose gradients are one product
constexpr int64_t kLogitsAtOnce = 16 << 20;    // logits in memory at once

void check_side(const Value& value, const Value& like, bool floats, const char* what) {
  const bool integer = value.dtype.code == kDLInt && (value.dtype.bits == 32 || value.dtype.bits == 64);
  if ((integer || (floats && is_float(value.dtype))) && value.has_rows_of(like) && value.width <= 1) return;
  fail(TSR_INVALID_ARGUMENT, kItemLoss, " takes ", what, " as ", floats ? "numbers" : "integers",
       ", one for each of these rows");
}

float number_at(const DLTensor& tensor, int64_t i) { return tessera::sdk::data_as<float>(tensor)[i]; }

// ln q: a float is the logarithm itself, and an integer is a count.
float log_q_at(const DLTensor& tensor, int64_t i) {
  if (is_float(tensor.dtype)) return number_at(tensor, i);
  return std::log(static_cast<float>(std::max<int64_t>(integer_at(tensor, i), 1)));
}

void fill_zeros(const DLTensor& t) {
  if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
}

}  // namespace

void IdIndex::take(const std::vector<int64_t>& ids) {
  ids_ = &ids;
  order_.resize(ids.size());
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!std::is_sorted(ids.begin(), ids.end()))
    std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return of(a) < of(b); });
}

ItemLoss::ItemLoss(const tessera::sdk::Setup& setup)
    : host_(setup.host), loops_(choose_loops()), tiles_(host_, loops_), drawn_(setup.options) {
  tessera::sdk::Options& options = setup.options;
  tessera::sdk::joined_width(options);
  const size_t kind = options.word("kind", {"softmax", "bce", "gbce"});
  softmax_ = kind == 0;
  shared_ = static_cast<Shared>(options.word("negatives", {"batch", "sample", "row", "in_batch"}));
  last_ = options.word("rows", {"all", "last"}) == 1;
  drop_ = options.word("collisions", {"drop", "keep"}) == 0;
  weights_ = options.flag("weights", false);
  log_q_ = options.flag("log_q", false);
  correct_item_ = options.flag("correct_item", true);
  const double temperature = options.number("temperature", 1);
  if (!(temperature > 0)) fail(TSR_INVALID_ARGUMENT, "option \"temperature\" must be above 0, not ", temperature);
  scale_ = static_cast<float>(1 / temperature);
  t_ = kind == 2 ? options.number("t", 0.75) : 0;
  items_ = kind == 2 ? options.integer("items", 0) : 0;
  if (kind == 2 && items_ < 2)
    fail(TSR_INVALID_ARGUMENT, "option \"items\" of gbce must be the number of items, at least 2, not ", items_);
  if (!(t_ >= 0 && t_ <= 1)) fail(TSR_INVALID_ARGUMENT, "option \"t\" must be from 0 to 1, not ", t_);
  counted_ = options.integer("count_items", 0);
  if (counted_ < 0) fail(TSR_INVALID_ARGUMENT, "option \"count_items\" is a number of items, not ", counted_);
  if ((log_q_ || counted_ > 0) && !softmax_)
    fail(TSR_INVALID_ARGUMENT, "options \"log_q\" and \"count_items\" correct a softmax, and \"kind\" is another ",
         "loss: leave them out");
  if (log_q_ && counted_ > 0)
    fail(TSR_INVALID_ARGUMENT,
         "option \"log_q\" says that log_q is an input, and \"count_items\" counts it: leave one "
         "of the two out");
  if (!correct_item_ && !log_q_ && counted_ == 0)
    fail(TSR_INVALID_ARGUMENT,
         "option \"correct_item\" has no effect without \"log_q\" or \"count_items\": leave it out");
  if (counted_ > 0) buffers_.push_back({"counts", {counted_}});
  const bool split = options.flag("split", false);
  if (split && (!softmax_ || shared_ != Shared::kBatch))
    fail(TSR_INVALID_ARGUMENT,
         "option \"split\" is for a softmax whose candidates all samples share: leave it out, or ",
         "set kind = \"softmax\" and negatives = \"batch\"");
  if (split) split_softmax_.emplace(tiles_, scale_);
  prepare_products();
  place_inputs();
}

void ItemLoss::place_inputs() {
  const bool apart = shared_ != Shared::kInBatch;
  size_t next = 2;
  if (apart) places_.candidates = next++;
  places_.ids = next++;
  if (apart) places_.candidate_ids = next++;
  if (weights_) places_.weights = next++;
  if (log_q_) places_.log_q = next++;
  if (log_q_ && apart) places_.candidate_log_q = next++;
  places_.count = next;
}

std::vector<Value> ItemLoss::outputs(std::span<const Value> inputs) const {
  if (inputs.size() != places_.count) {
    fail(TSR_INVALID_ARGUMENT, kItemLoss, " with these options takes ", places_.count, " inputs, not ", inputs.size(),
         ": states, the items' rows", places_.candidates ? ", candidates' rows" : "", ", the items' ids",
         places_.candidates ? ", the candidates' ids" : "", weights_ ? ", weights" : "", log_q_ ? ", log_q" : "",
         places_.candidate_log_q ? ", the candidates' log_q" : "");
  }
  for (const size_t i : {size_t{0}, size_t{1}, places_.candidates}) {
    if (!is_float(inputs[i].dtype)) fail(TSR_INVALID_ARGUMENT, kItemLoss, " takes rows of float32 values");
    if (inputs[i].width != inputs[0].width && inputs[i].width != 0 && inputs[0].width != 0)
      fail(TSR_INVALID_ARGUMENT, kItemLoss, " takes states and items of one width, not of ", inputs[0].width, " and ",
           inputs[i].width, " values: put the layer \"linear\" before it");
  }
  if (places_.candidates && inputs[places_.candidates].only_in_evaluation)
    fail(TSR_INVALID_ARGUMENT, kItemLoss, " compares in training, but its candidates (input ", places_.candidates,
         ") are drawn in evaluation alone: take those of another feature, or leave out during=evaluation");
  if (places_.candidates)
    drawn_.check(places_.candidates, shared_ == Shared::kSample || shared_ == Shared::kRow, kItemLoss);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool of_candidates = places_.candidates && inputs[i].has_rows_of(inputs[places_.candidates]);
    if ((inputs[i].split || inputs[i].split_in_evaluation) && !(split_softmax_ && of_candidates))
      fail(TSR_INVALID_ARGUMENT, "each rank has other rows of input ", i, ": ",
           of_candidates ? "set the option \"split\" of item_loss, too" : "only candidates may be split");
  }
  if (!inputs[1].has_rows_of(inputs[0]))
    fail(TSR_INVALID_ARGUMENT, kItemLoss,
         " takes one item's row for each state, but inputs 0 and 1 have different rows");
  check_side(inputs[places_.ids], inputs[1], false, "the items' ids");
  if (places_.candidates)
    check_side(inputs[places_.candidate_ids], inputs[places_.candidates], false, "the candidates' ids");
  if (weights_) check_side(inputs[places_.weights], inputs[0], true, "weights");
  if (log_q_) check_side(inputs[places_.log_q], inputs[1], true, "log_q of the items");
  if (places_.candidate_log_q)
    check_side(inputs[places_.candidate_log_q], inputs[places_.candidates], true, "log_q of the candidates");
  return {Value{1}};
}

void ItemLoss::take(const ModuleCall& call) {
  width_ = call.inputs[0].shape[1];
  choose_rows(call);
  if (call.grad_outputs.empty()) count_items(call);  // only in forward
  const auto rows = std::ssize(rows_);
  float *states = states_.at_least(host_, rows * width_), *items = item_rows_.at_least(host_, rows * width_);
  const float* from = matrix(call.inputs[0], call.inputs[0].shape[0], width_, "the states");
  const float* items_from = matrix(call.inputs[1], call.inputs[0].shape[0], width_, "the items' rows");
  for (const Row& row : rows_) {
    states = std::copy_n(from + row.row * width_, width_, states);
    items = std::copy_n(items_from + row.row * width_, width_, items);
  }
  ids_.clear();
  if (places_.candidates) {
    const DLTensor& t = call.inputs[places_.candidates];
    count_ = t.shape[0];
    candidates_ = matrix(t, count_, width_, "the candidates' rows");
    for (int64_t i = 0; i < count_; ++i) ids_.push_back(integer_at(call.inputs[places_.candidate_ids], i));
  } else {
    count_ = rows;
    candidates_ = item_rows_.data();
    for (const Row& row : rows_) ids_.push_back(row.id);
  }
  if (drop_) index_.take(ids_);
  take_log_q(call);
  make_groups(call);
  leave_out();
}

void ItemLoss::choose_rows(const ModuleCall& call) {
  const SampleRows samples(call, 0, kItemLoss);
  rows_.clear();
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t end = samples.begin(s) + samples.count(s);
    for (int64_t r = last_ ? std::max(samples.begin(s), end - 1) : samples.begin(s); r < end; ++r) {
      double weight = 1;
      if (weights_) {
        const DLTensor& t = call.inputs[places_.weights];
        weight = is_float(t.dtype) ? static_cast<double>(number_at(t, r)) : static_cast<double>(integer_at(t, r));
        if (!(weight >= 0)) fail(TSR_INVALID_ARGUMENT, kItemLoss, " takes weights of at least 0, not ", weight);
      }
      if (weight > 0) rows_.push_back({r, s, weight, 0, integer_at(call.inputs[places_.ids], r), 0, 0});
    }
  }
}

float ItemLoss::counted_log_q(const ModuleCall& call, int64_t id) const {
  if (id < 0 || id >= counted_)
    fail(TSR_INVALID_ARGUMENT, kItemLoss, " counts ", counted_, " items, but one is ", id,
         ": set count_items to the rows of the table");
  return std::log(std::max(number_at(call.buffers[0], id), 1.0f));
}

// Adds the items of this step's rows on all ranks to the counts.
void ItemLoss::count_items(const ModuleCall& call) {
  if (counted_ == 0 || !call.trains) return;
  float* fresh = fresh_counts_.at_least(host_, counted_);
  std::fill_n(fresh, counted_, 0.0f);
  for (const Row& row : rows_) {
    (void)counted_log_q(call, row.id);  // throws Failure for an id that is not counted
    ++fresh[row.id];
  }
  int64_t size = counted_;
  call.sum_over_ranks({fresh, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &size, nullptr, 0});
  loops_.add(counted_, fresh, matrix(call.buffers[0], counted_, 1, "the counts"));
}

void ItemLoss::take_log_q(const ModuleCall& call) {
  log_q_of_.clear();
  for (Row& row : rows_) row.log_q = counted_ > 0 ? counted_log_q(call, row.id) : 0;
  for (size_t i = 0; counted_ > 0 && i < ids_.size(); ++i) log_q_of_.push_back(counted_log_q(call, ids_[i]));
  if (!log_q_) return;
  for (Row& row : rows_) row.log_q = log_q_at(call.inputs[places_.log_q], row.row);
  for (int64_t i = 0; i < count_; ++i)
    log_q_of_.push_back(places_.candidate_log_q ? log_q_at(call.inputs[places_.candidate_log_q], i)
                                                : rows_[static_cast<size_t>(i)].log_q);
}

void ItemLoss::make_groups(const ModuleCall& call) {
  groups_.clear();
  const auto rows = std::ssize(rows_);
  if (rows == 0) return;
  if (shared_ == Shared::kBatch || shared_ == Shared::kInBatch) {
    groups_.push_back({0, rows, 0, count_});
    return;
  }
  const SampleRows samples(call, 0, kItemLoss), of_samples(call, places_.candidates, kItemLoss);
  for (int64_t i = 0; i < rows; ++i) {
    const Row& row = rows_[static_cast<size_t>(i)];
    const int64_t begin = of_samples.begin(row.sample), count = of_samples.count(row.sample);
    if (shared_ == Shared::kSample) {
      if (i > 0 && rows_[static_cast<size_t>(i) - 1].sample == row.sample)
        ++groups_.back().last;
      else
        groups_.push_back({i, i + 1, begin, begin + count});
      continue;
    }
    const int64_t of_sample = samples.count(row.sample), each = count / of_sample;
    if (each * of_sample != count)
      fail(TSR_INVALID_ARGUMENT, kItemLoss, " has ", count, " candidates for the ", of_sample, " rows of sample ",
           row.sample, ", but with negatives = \"row\" each row needs as many");
    const int64_t first = begin + (row.row - samples.begin(row.sample)) * each;
    groups_.push_back({i, i + 1, first, first + each});
  }
}

void ItemLoss::leave_out() {
  left_out_.clear();
  for (const Group& group : groups_) {
    for (int64_t i = group.first; i < group.last; ++i) {
      Row& row = rows_[static_cast<size_t>(i)];
      const auto before = std::ssize(left_out_.candidates);
      const auto add = [&](int64_t candidate) { left_out_.candidates.push_back(candidate - group.begin); };
      if (drop_)
        index_.each(row.id, group.begin, group.end, add);
      else if (shared_ == Shared::kInBatch)
        add(i);
      left_out_.end_row();
      row.negatives = group.end - group.begin - (std::ssize(left_out_.candidates) - before);
      if (items_ > 0 && row.negatives >= items_)
        fail(TSR_INVALID_ARGUMENT, kItemLoss, " of gbce has ", row.negatives,
             " negatives for an item, but with items = ", items_, " there are only ", items_ - 1,
             " others: set items to the number of items, or draw fewer negatives");
      // Without a negative, a logistic loss would only raise the item's score.
      if (!softmax_ && row.negatives == 0 && group.end > group.begin) row.weight = 0;
    }
  }
}

// Sets the rows' factors. The mean over the samples of all ranks equals the mean over all rows in training. Otherwise a
// sample's value is the mean over its own rows.
void ItemLoss::weigh(const ModuleCall& call) {
  std::array<double, 2> sums = {0, static_cast<double>(call.batch)};
  for (const Row& row : rows_) sums[0] += row.weight;
  if (call.trains) {
    int64_t two = 2;
    const DLTensor t = {sums.data(), {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, &two, nullptr, 0};
    call.sum_over_ranks(t);
    for (Row& row : rows_) row.factor = row.weight > 0 ? row.weight * sums[1] / sums[0] : 0;
    return;
  }
  for (size_t i = 0, end = 0; i < rows_.size(); i = end) {
    double sum = 0;
    for (end = i; end < rows_.size() && rows_[end].sample == rows_[i].sample; ++end) sum += rows_[end].weight;
    for (size_t k = i; k < end; ++k) rows_[k].factor = sum > 0 ? rows_[k].weight / sum : 0;
  }
}

int64_t ItemLoss::rows_at_once(const Group& group) const {
  return std::max<int64_t>(1, std::min(group.last - group.first, kLogitsAtOnce / (group.end - group.begin + 1)));
}
int64_t ItemLoss::scratch_of(const Group& group) const { return rows_at_once(group) * (group.end - group.begin + 1); }

template <class Body>
void ItemLoss::each_group(const Body& body) {
  in_blocks(host_, std::ssize(groups_), 1,
            [&](int64_t g, int64_t, int64_t slot) { body(groups_[static_cast<size_t>(g)], slot); });
}

void ItemLoss::run_logistic(const Back* back) {
  int64_t most = 0;
  for (const Group& group : groups_) most = std::max(most, scratch_of(group));
  float* scratch = scratch_.at_least(host_, most * std::max<int64_t>(1, slots_of(host_, std::ssize(groups_), 1)));
  each_group([&](const Group& group, int64_t slot) { run_group(group, back, scratch + slot * most); });
}

void ItemLoss::run_group(const Group& group, const Back* back, float* scratch) {
  const int64_t count = group.end - group.begin, width = count + 1, size = rows_at_once(group);
  for (int64_t first = group.first; first < group.last; first += size) {
    const int64_t rows = std::min(size, group.last - first);
    const bool worth = rows * count * width_ > kProductsWorthAThread;
    one_by_one(host_, (rows + kRowsTogether - 1) / kRowsTogether, worth, [&](int64_t k) {
      const OneThread alone;
      run_rows(group, first + k * kRowsTogether, first + std::min(rows, (k + 1) * kRowsTogether), back,
               scratch + k * kRowsTogether * width);
    });
    if (!back || !back->candidates) continue;
    one_by_one(host_, (count + kCandidatesTogether - 1) / kCandidatesTogether, worth, [&](int64_t k) {
      const OneThread alone;
      const int64_t tile = std::min(kCandidatesTogether, count - k * kCandidatesTogether),
                    at = group.begin + k * kCandidatesTogether;
      multiply({'T', 'N', tile, width_, rows, 1, scratch + 1 + k * kCandidatesTogether, width,
                states_.data() + first * width_, width_, 1, back->candidates + at * width_, width_});
    });
  }
}

void ItemLoss::logits(const Group& group, int64_t first, int64_t last, float* z) const {
  const int64_t count = group.end - group.begin, width = count + 1;
  const float *states = states_.data(), *items = item_rows_.data();
  if (count > 0)
    multiply({'N', 'T', last - first, count, width_, scale_, states + first * width_, width_,
              candidates_ + group.begin * width_, width_, 0, z + 1, width});
  for (int64_t i = first; i < last; ++i, z += width) {
    z[0] = scale_ * loops_.of_rows->dot(width_, states + i * width_, items + i * width_);
    left_out_.each(i, 0, count, [&](int64_t c) { z[1 + c] = -INFINITY; });
  }
}

// The factor of the item's term in a logistic loss: gbce reduces it.
float ItemLoss::item_share(const Row& row) const {
  if (items_ == 0) return 1;
  const double alpha = static_cast<double>(row.negatives) / static_cast<double>(items_ - 1);
  return static_cast<float>(1 - t_ * (1 - alpha));
}

float ItemLoss::loss_of(const Row& row, int64_t width, float* z) const {
  z[0] = -z[0];
  loops_.of_rows->activate(Activation::kSoftplus, width, 0, z, z);
  z[0] *= item_share(row);
  return static_cast<float>(std::accumulate(z, z + width, 0.0) / static_cast<double>(1 + row.negatives));
}

void ItemLoss::gradients_of(const Row& row, int64_t width, float scale, float* z) const {
  z[0] = -z[0];
  loops_.of_rows->activate(Activation::kSigmoid, width, 0, z, z);
  z[0] *= -item_share(row);
  scale /= static_cast<float>(1 + row.negatives);
  loops_.of_rows->scale(width, scale, z, z);
}

void ItemLoss::run_rows(const Group& group, int64_t first, int64_t last, const Back* back, float* z) {
  const int64_t count = group.end - group.begin, width = count + 1;
  logits(group, first, last, z);
  for (int64_t i = first; i < last; ++i) {
    const Row& row = rows_[static_cast<size_t>(i)];
    float* of_row = z + (i - first) * width;
    if (!back) {
      losses_[static_cast<size_t>(i)] = loss_of(row, width, of_row);
      continue;
    }
    gradients_of(row, width, back->grads[row.sample] * static_cast<float>(row.factor) * scale_, of_row);
  }
  if (!back) return;
  float *states = grad_states_.data() + first * width_, *items = grad_items_.data() + first * width_;
  if (count > 0)
    multiply({'N', 'N', last - first, width_, count, 1, z + 1, width, candidates_ + group.begin * width_, width_, 0,
              states, width_});
  else
    std::fill_n(states, (last - first) * width_, 0.0f);
  for (int64_t i = first; i < last; ++i, states += width_, items += width_, z += width) {
    loops_.of_rows->add_scaled(width_, z[0], item_rows_.data() + i * width_, states);
    loops_.of_rows->add_scaled(width_, z[0], states_.data() + i * width_, items);
  }
}

void ItemLoss::forward(const ModuleCall& call, tsr_module_context** context) {
  float* out = matrix(call.outputs[0], call.batch, 1, "item_loss's output");
  take(call);
  weigh(call);
  losses_.assign(rows_.size(), 0.0f);
  auto lease = contexts_.take();
  softmax_ ? run_softmax(call, &lease->all) : run_logistic(nullptr);
  std::fill_n(out, call.batch, 0.0f);
  lease->factors.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].factor > 0) out[rows_[i].sample] += static_cast<float>(rows_[i].factor * losses_[i]);
    lease->factors.push_back(rows_[i].factor);
  }
  contexts_.hand_out(std::move(lease), context);
}

void ItemLoss::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call) && !combines(call)) return;
  for (const DLTensor& t : call.grad_inputs) fill_zeros(t);
  take(call);
  const std::vector<double>& factors = contexts_.of(context)->factors;
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].factor = factors[i];
  const auto values = std::ssize(rows_) * width_;
  grad_states_.at_least(host_, values);
  std::fill_n(grad_items_.at_least(host_, values), values, 0.0f);
  Back back{matrix_or_null(call.grad_outputs[0], call.batch, 1, "the gradient of item_loss's output")};
  back.candidates = places_.candidates ? matrix_or_null(call.grad_inputs[places_.candidates], count_, width_,
                                                        "the gradient of the candidates")
                                       : grad_items_.data();
  softmax_ ? run_softmax_back(call, back, contexts_.of(context)->all) : run_logistic(&back);
  give_back(call);
}

CandidatesHere ItemLoss::here() const {
  return {count_, candidates_, ids_.data(), log_q_of_.empty() ? nullptr : log_q_of_.data(), drop_ ? &index_ : nullptr};
}

float ItemLoss::item_logit(int64_t i) const {
  const float z = scale_ * loops_.of_rows->dot(width_, states_.data() + i * width_, item_rows_.data() + i * width_);
  return z - (correct_item_ ? rows_[static_cast<size_t>(i)].log_q : 0);
}

Compared ItemLoss::compared(const Group& group) const {
  return {group.last - group.first,
          group.end - group.begin,
          width_,
          scale_,
          states_.data() + group.first * width_,
          candidates_ + group.begin * width_,
          log_q_of_.empty() ? nullptr : log_q_of_.data() + group.begin,
          &left_out_,
          group.first};
}

void ItemLoss::run_softmax(const ModuleCall& call, AllRows* all) {
  if (combines(call)) {
    row_ids_.clear();
    for (const Row& row : rows_) row_ids_.push_back(row.id);
    all->width = width_;
    split_softmax_->gather(call, states_.data(), row_ids_, here(), all);
    split_softmax_->sum_up(call, here(), all);
  } else {
    all->first = 0;
    all->own = std::ssize(rows_);
    all->log_sums.assign(rows_.size(), -INFINITY);
    each_group(
        [&](const Group& group, int64_t) { tiles_.sum_up(compared(group), all->log_sums.data() + group.first); });
  }
  for (int64_t i = 0; i < all->own; ++i) {
    double& sum = all->log_sums[static_cast<size_t>(all->first + i)];
    const double z = item_logit(i);
    sum = log_of_sum(sum, z);
    losses_[static_cast<size_t>(i)] = static_cast<float>(sum - z);
  }
}

void ItemLoss::run_softmax_back(const ModuleCall& call, const Back& back, const AllRows& all) {
  std::vector<float>& factors = row_factors_;
  factors.clear();
  for (const Row& row : rows_)
    factors.push_back(back.grads == nullptr ? 0 : back.grads[row.sample] * static_cast<float>(row.factor) * scale_);
  if (combines(call)) {
    split_softmax_->backward(call, here(), factors, all, grad_states_.data(), back.candidates);
  } else {
    each_group([&](const Group& group, int64_t) {
      tiles_.backward(compared(group), factors.data() + group.first, all.log_sums.data() + group.first,
                      grad_states_.data() + group.first * width_,
                      back.candidates == nullptr ? nullptr : back.candidates + group.begin * width_);
    });
  }
  for (int64_t i = 0; i < all.own; ++i) {
    const double share = std::exp(item_logit(i) - all.log_sums[static_cast<size_t>(all.first + i)]);
    const float dz = factors[static_cast<size_t>(i)] * static_cast<float>(share - 1);
    loops_.of_rows->add_scaled(width_, dz, item_rows_.data() + i * width_, grad_states_.data() + i * width_);
    loops_.of_rows->add_scaled(width_, dz, states_.data() + i * width_, grad_items_.data() + i * width_);
  }
}

void ItemLoss::give_back(const ModuleCall& call) const {
  const int64_t rows = call.inputs[0].shape[0];
  float* states = matrix_or_null(call.grad_inputs[0], rows, width_, "the gradient of the states");
  float* items = matrix_or_null(call.grad_inputs[1], rows, width_, "the gradient of the items' rows");
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) * width_, to = rows_[i].row * width_;
    if (states) std::copy_n(grad_states_.data() + from, width_, states + to);
    if (items) std::copy_n(grad_items_.data() + from, width_, items + to);
  }
}

}  // namespace tessera_dense
