#include "attention.h"

#include <bit>
#include <cmath>
#include <utility>

#include "dropout.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

constexpr const char* kName = "attention";
constexpr int64_t kRowsOfATile = 32;
constexpr double kBucketWidth = 0.301;  // width of a bucket of ln(time), as in HSTU

// The columns of a tile that one of its rows sees: a range, and the row's own column, which may lie outside the range.
struct Part {
  int64_t first, last, self;  // columns of the tile
  bool apart() const { return self >= last || self < first; }
  int64_t count() const { return last - first + (apart() ? 1 : 0); }
};

// Moves the row's own value to the end of the range, so that one loop runs over both; the destructor moves it back.
class Together {
 public:
  Together(const Part& part, float* row) : part_(part), row_(row), swaps_(part.apart() && part.self != part.last) {
    if (swaps_) std::swap(row_[part_.last], row_[part_.self]);
  }
  ~Together() {
    if (swaps_) std::swap(row_[part_.last], row_[part_.self]);
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
  float* begin() const { return row_ + part_.first; }

 private:
  Part part_;
  float* row_;
  bool swaps_;
};

void clear_invisible(const Part& part, int64_t keys, float* row) {
  const float self = row[part.self];
  std::fill(row, row + part.first, 0.0f);
  std::fill(row + part.last, row + keys, 0.0f);
  row[part.self] = self;
}

}  // namespace

TimeBuckets::TimeBuckets(int64_t count) : edges_(static_cast<size_t>(count) + 1), guess_(65, 0) {
  const auto bucket_of = [](double delta) { return std::floor(std::log(delta) / kBucketWidth); };
  for (size_t b = 1; b < edges_.size(); ++b) {
    const double about = std::exp(kBucketWidth * static_cast<double>(b));
    if (about >= 9e18) {  // beyond int64
      edges_[b] = UINT64_MAX;
      continue;
    }
    auto edge = static_cast<uint64_t>(about) > 2 ? static_cast<uint64_t>(about) - 2 : uint64_t{1};
    while (bucket_of(static_cast<double>(edge)) < static_cast<double>(b)) ++edge;
    edges_[b] = edge;
  }
  for (int bits = 1; bits <= 64; ++bits) {
    const uint64_t least = uint64_t{1} << (bits - 1);
    size_t b = 0;
    while (b + 1 < edges_.size() && b < 255 && edges_[b + 1] <= least) ++b;
    guess_[static_cast<size_t>(bits)] = static_cast<uint8_t>(b);
  }
}

int64_t TimeBuckets::of(int64_t delta) const {
  const uint64_t d = delta < 0 ? uint64_t{0} - static_cast<uint64_t>(delta) : static_cast<uint64_t>(delta);
  size_t b = guess_[static_cast<size_t>(std::bit_width(d))];
  while (b + 1 < edges_.size() && edges_[b + 1] <= d) ++b;
  return static_cast<int64_t>(b);
}

Attention::Attention(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(*choose_loops().of_rows),
      heads_(setup.options.integer("heads", 1)),
      scale_(setup.options.number("scale", 0)),
      dropout_(read_rate(setup.options, "dropout", 0)),
      length_(setup.options.integer("length", 0)) {
  tessera::sdk::joined_width(setup.options);
  prepare_products();
  kind_ = static_cast<Kind>(setup.options.word("kind", {"softmax", "silu", "linear"}));
  last_rows_ = setup.options.flag("last_rows", false);
  if (heads_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"heads\" must be above 0, not ", heads_);
  if (!std::isfinite(scale_)) fail(TSR_INVALID_ARGUMENT, "option \"scale\" must be a number, not ", scale_);
  if (scale_ == 0 && setup.options.has("scale"))
    fail(TSR_INVALID_ARGUMENT, "option \"scale\" must not be 0, which takes no account of queries and keys: leave it ",
         "out for 1 / sqrt(width of a head's keys)");
  read_mask(setup.options);
  read_bias(setup.options);
  if (length_ < 1 && (kind_ != Kind::kSoftmax || position_bias_)) {
    fail(TSR_INVALID_ARGUMENT, "option \"length\" must give ",
         position_bias_ ? "the most rows of a sample" : "the number by which the weights are divided", ", above 0");
  }
  if (kind_ == Kind::kSoftmax && !position_bias_ && !next_times_ && setup.options.has("length"))
    fail(TSR_INVALID_ARGUMENT, "option \"length\" has no effect on a softmax without a position bias: leave it out");
  if (position_bias_) parameters_.push_back({"position_bias", {2 * length_ - 1}, tessera::sdk::normal(0, 0.02)});
  if (buckets_) parameters_.push_back({"time_bias", {buckets_->count() + 1}, tessera::sdk::normal(0, 0.02)});
}

void Attention::read_mask(tessera::sdk::Options& options) {
  const auto least = [&](const char* name, int64_t otherwise) {
    const int64_t value = options.integer(name, otherwise);
    if (value < otherwise) fail(TSR_INVALID_ARGUMENT, "option \"", name, "\" must be 0 or above, not ", value);
    return value;
  };
  mask_.causal = options.flag("causal", true);
  mask_.window = options.has("window") ? least("window", 0) : -1;
  mask_.contextual = least("contextual", 0);
  mask_.full = least("full", 0);
  if (mask_.full > 0 && mask_.window < 0)
    fail(TSR_INVALID_ARGUMENT, "option \"full\" is the number of rows that a \"window\" does not limit, and there is ",
         "no window: set it, or leave out \"full\"");
  targets_ = options.flag("targets", false);
  if (!mask_.causal && (targets_ || mask_.contextual > 0 || mask_.full > 0)) {
    fail(TSR_INVALID_ARGUMENT, "options \"targets\", \"contextual\" and \"full\" are of a causal attention: without ",
         "\"causal\" every row sees all others, or those in its \"window\"");
  }
}

void Attention::read_bias(tessera::sdk::Options& options) {
  const std::string bias = options.string("bias", "none");
  const bool both = bias == "both";
  if (!both && bias != "none" && bias != "position" && bias != "time")
    fail(TSR_INVALID_ARGUMENT, "option \"bias\" is \"", bias, "\", but must be none, position, time or both");
  position_bias_ = both || bias == "position";
  times_ = both || bias == "time";
  next_times_ = times_ && options.flag("next_times", false);
  if (!times_) return;
  const int64_t buckets = options.integer("buckets", 128);
  constexpr int64_t kMostBuckets = 1 << 20;  // int64 times fill fewer than 150
  if (buckets < 1 || buckets > kMostBuckets)
    fail(TSR_INVALID_ARGUMENT, "option \"buckets\" must be from 1 to ", kMostBuckets, ", not ", buckets);
  buckets_.emplace(buckets);
}

std::vector<Value> Attention::outputs(std::span<const Value> inputs) const {
  const size_t wanted = 3 + (times_ ? 1 : 0) + (next_times_ ? 1 : 0) + (targets_ ? 1 : 0);
  if (inputs.size() != wanted) {
    fail(TSR_INVALID_ARGUMENT, "attention with these options takes ", wanted, " inputs (queries, keys, values",
         times_ ? ", times" : "", next_times_ ? ", next times" : "", targets_ ? ", targets" : "", "), not ",
         inputs.size());
  }
  for (size_t i = 0; i < 3; ++i) {
    const int64_t width = width_of_rows(inputs[i], kName);
    if (!inputs[i].has_rows_of(inputs[last_rows_ && i > 0 ? 1 : 0]))
      fail(TSR_INVALID_ARGUMENT, "attention takes queries, keys and values with the same rows, but inputs 0 and ", i,
           " have different ones");
    if (width % heads_ != 0)
      fail(TSR_INVALID_ARGUMENT, "attention has ", heads_, " heads, and ", width, " values are no multiple");
  }
  if (inputs[0].width != inputs[1].width)
    fail(TSR_INVALID_ARGUMENT, "attention takes queries and keys of one width, not of ", inputs[0].width, " and ",
         inputs[1].width, " values");
  size_t next = 3;
  if (times_) check_integers(inputs[next++], &inputs[1], kName, "times");
  if (next_times_) check_integers(inputs[next++], nullptr, kName, "next times");
  if (targets_) RowCounts::check(inputs[next++], kName, "numbers of targets");
  return {inputs[0].with_width(inputs[2].width)};
}

Attention::Inputs Attention::inputs_of(const ModuleCall& call) {
  const Sequence q = sequence_of(call, 0, 0, kName), k = sequence_of(call, 1, q.width, kName),
                 v = sequence_of(call, 2, 0, kName);
  if ((k.count != q.count && !last_rows_) || v.count != k.count)
    fail(TSR_INVALID_ARGUMENT, "attention takes queries, keys and values with the same rows");
  parameter_data(call.parameters, parameters_, pointers_);
  Inputs in{q, k, v, call.batch, q.width / heads_, v.width / heads_, nullptr, nullptr, {}, nullptr, nullptr};
  size_t next = 3;
  if (times_) in.times = &call.inputs[next++];
  if (next_times_) in.next_times = &call.inputs[next++];
  if (targets_) in.targets = RowCounts(call, next++, kName);
  next = 0;
  if (position_bias_) in.position_bias = pointers_[next++];
  if (buckets_) in.time_bias = pointers_[next++];
  check_lengths(in);
  return in;
}

void Attention::check_lengths(const Inputs& in) const {
  for (int64_t s = 0; s < in.batch; ++s) {
    const int64_t rows = in.k.offsets[s + 1] - in.k.offsets[s], asked = in.q.offsets[s + 1] - in.q.offsets[s];
    if (asked > rows)
      fail(TSR_INVALID_ARGUMENT, "sample ", s, " has ", asked, " queries of its last rows, but only ", rows, " rows");
    if (position_bias_ && rows > length_) {
      fail(TSR_INVALID_ARGUMENT, "sample ", s, " has ", rows, " rows, but attention's \"length\" is ", length_,
           ": truncate the lists or raise it");
    }
    const int64_t targets = in.targets.of(s);
    if (targets < 0 || targets > rows)
      fail(TSR_INVALID_ARGUMENT, "sample ", s, " has ", targets, " targets, but ", rows, " rows");
  }
}

Visible Attention::visible(const Inputs& in, const Tile& tile) const {
  return {mask_, tile.count, in.targets.of(tile.sample)};
}

// The bucket of the time from row j to the row after i, because row i predicts that event at the event's time.
int64_t Attention::bucket(const Inputs& in, const Tile& tile, int64_t i, int64_t j) const {
  int64_t then = 0;
  if (i + 1 < tile.count) {
    then = integer_at(*in.times, tile.base + i + 1);
  } else if (in.next_times && (length_ == 0 || tile.count < length_)) {
    then = integer_at(*in.next_times, tile.sample);
  } else {
    then = integer_at(*in.times, tile.base + i);
  }
  return buckets_->of(then - integer_at(*in.times, tile.base + j));
}

template <class Body>
void Attention::for_tiles(const Inputs& in, const Body& body) {
  int64_t longest = 0, work = 0;
  for (int64_t s = 0; s < in.batch; ++s) {
    const int64_t rows = in.k.offsets[s + 1] - in.k.offsets[s];
    longest = std::max(longest, rows);
    work += rows * (in.q.offsets[s + 1] - in.q.offsets[s]) * (in.q.width + in.v.width);
  }
  const int64_t tasks = in.batch * heads_, size = work >= kProductsWorthAThread ? 1 : std::max<int64_t>(tasks, 1);
  const int64_t floats = std::min(longest, kRowsOfATile) * longest;
  float* memory = scratch_.at_least(host_, 3 * floats * std::max<int64_t>(slots_of(host_, tasks, size), 1));
  in_blocks(host_, tasks, size, [&](int64_t first, int64_t last, int64_t slot) {
    const OneThread alone;
    float* own = memory + 3 * floats * slot;
    for (int64_t task = first; task < last; ++task) {
      const int64_t sample = task / heads_, base = in.k.offsets[sample];
      const int64_t count = in.k.offsets[sample + 1] - base, queries = in.q.offsets[sample + 1] - count;
      Tile tile{sample, task % heads_, base, count, queries, in.q.offsets[sample] - queries, 0, 0, 0};
      const Visible sees = visible(in, tile);
      for (; tile.begin < tile.count; tile.begin = tile.end) {
        tile.end = std::min(tile.count, tile.begin + kRowsOfATile);
        tile.first_key = tile.begin;
        tile.last_key = tile.end;
        for (int64_t i = tile.begin; i < tile.end; ++i) {
          const Visible::Range range = sees.of(i);
          tile.first_key = std::min(tile.first_key, range.first);
          tile.last_key = std::max(tile.last_key, range.last);
        }
        body(tile, sees, Scratch{own, own + floats, own + 2 * floats});
      }
    }
  });
}

namespace {

Part part_of(const Visible& sees, int64_t i, int64_t first_key) {
  const Visible::Range range = sees.of(i);
  return {range.first - first_key, range.last - first_key, i - first_key};
}

// Calls body(column) for each column of the part.
template <class Body>
void for_part(const Part& part, const Body& body) {
  for (int64_t j = part.first; j < part.last; ++j) body(j);
  if (part.apart()) body(part.self);
}

}  // namespace

// Computes logits [rows, keys]: scale * q . k + bias. The bias is added only for visible rows.
void Attention::make_logits(const Inputs& in, const Tile& tile, const Visible& sees, float* logits) const {
  const int64_t width = in.key_width, keys = tile.keys();
  const float scale = scale_ != 0 ? static_cast<float>(scale_) : 1 / std::sqrt(static_cast<float>(width));
  const float* q = in.q.rows + (tile.queries + tile.begin) * in.q.width + tile.head * width;
  const float* k = in.k.rows + (tile.base + tile.first_key) * in.k.width + tile.head * width;
  multiply({'N', 'T', tile.rows(), keys, width, scale, q, in.q.width, k, in.k.width, 0, logits, keys});
  if (!position_bias_ && !buckets_) return;
  for (int64_t i = tile.begin; i < tile.end; ++i) {
    float* row = logits + (i - tile.begin) * keys;
    for_part(part_of(sees, i, tile.first_key), [&](int64_t column) {
      const int64_t j = column + tile.first_key;
      if (position_bias_) row[column] += in.position_bias[length_ - 1 + j - i];
      if (buckets_) row[column] += in.time_bias[bucket(in, tile, i, j)];
    });
  }
}

// Computes weights [rows, keys], zero for invisible rows. `weights` may be `logits`; if not, "silu" leaves its slopes
// in `logits`.
void Attention::weigh(const Tile& tile, const Visible& sees, float* logits, float* weights) const {
  const int64_t keys = tile.keys();
  const float each = kind_ == Kind::kSoftmax ? 1 : 1 / static_cast<float>(length_);
  for (int64_t i = tile.begin; i < tile.end; ++i) {
    const Part part = part_of(sees, i, tile.first_key);
    float *from = logits + (i - tile.begin) * keys, *to = weights + (i - tile.begin) * keys;
    const bool slopes = kind_ == Kind::kSilu && weights != logits;
    if (weights != logits && !slopes) std::copy_n(from, keys, to);
    clear_invisible(part, keys, to);
    const Together both(part, slopes ? from : to);
    float *x = both.begin(), *y = to + part.first;
    if (kind_ == Kind::kSoftmax) {
      loops_.softmax(1, part.count(), x, x);
    } else if (kind_ == Kind::kLinear) {
      loops_.scale(part.count(), each, x, x);
    } else if (slopes) {
      loops_.silu_and_slope(part.count(), each, x, y);
      if (part.apart() && part.self != part.last) to[part.self] = std::exchange(to[part.last], 0.0f);
    } else {
      loops_.silu(part.count(), each, x, x);
    }
  }
}

void Attention::drop(const ModuleCall& call, const Tile& tile, const float* from, float* to) const {
  for (int64_t i = 0; i < tile.rows(); ++i) {
    // The row counts keys, because with "last_rows" there are fewer queries.
    const int64_t row = (tile.base + tile.begin + i) * heads_ + tile.head;
    Dropper(call, static_cast<uint64_t>(row), dropout_)
        .drop(tile.first_key, tile.keys(), from + i * tile.keys(), to + i * tile.keys());
  }
}

// Turns the gradients of the weights into gradients of the logits.
void Attention::weigh_back(const Tile& tile, const Visible& sees, const Scratch& scratch) const {
  const int64_t keys = tile.keys();
  for (int64_t i = tile.begin; i < tile.end; ++i) {
    const Part part = part_of(sees, i, tile.first_key);
    const int64_t at = (i - tile.begin) * keys;
    clear_invisible(part, keys, scratch.gradients + at);
    const Together gradients(part, scratch.gradients + at);
    if (kind_ == Kind::kSoftmax) {
      const Together weights(part, scratch.weights + at);
      loops_.softmax_back(1, part.count(), weights.begin(), gradients.begin(), gradients.begin());
    } else {
      const Together slopes(part, scratch.logits + at);
      const float each = 1 / static_cast<float>(length_);
      if (kind_ == Kind::kSilu)
        loops_.multiply(part.count(), gradients.begin(), slopes.begin(), each, gradients.begin());
      else
        loops_.scale(part.count(), each, gradients.begin(), gradients.begin());
    }
  }
}

void Attention::forward(const ModuleCall& call, tsr_module_context** context) {
  const Inputs in = inputs_of(call);
  float* out = matrix(call.outputs[0], in.q.count, in.v.width, "attention's output");
  for_tiles(in, [&](const Tile& tile, const Visible& sees, const Scratch& scratch) {
    make_logits(in, tile, sees, scratch.logits);
    weigh(tile, sees, scratch.logits, scratch.logits);
    if (drops(call)) drop(call, tile, scratch.logits, scratch.logits);
    const int64_t column = tile.head * in.value_width;
    multiply({'N', 'N', tile.rows(), in.value_width, tile.keys(), 1, scratch.logits, tile.keys(),
              in.v.rows + (tile.base + tile.first_key) * in.v.width + column, in.v.width, 0,
              out + (tile.queries + tile.begin) * in.v.width + column, in.v.width});
  });
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void Attention::add_bias_gradients(const Inputs& in, const Tile& tile, const Visible& sees, const float* dlogits,
                                   const Gradients& grads) const {
  const int64_t task = tile.sample * heads_ + tile.head;
  float* positions = grads.position_bias + 2 * (tile.base * heads_ + tile.head * tile.count);
  float* times = grads.time_bias + (buckets_ ? task * (buckets_->count() + 1) : 0);
  for (int64_t i = tile.begin; i < tile.end; ++i) {
    const float* row = dlogits + (i - tile.begin) * tile.keys();
    for_part(part_of(sees, i, tile.first_key), [&](int64_t column) {
      const int64_t j = column + tile.first_key;
      if (position_bias_) positions[tile.count - 1 + j - i] += row[column];
      if (buckets_) times[bucket(in, tile, i, j)] += row[column];
    });
  }
}

// Adds the partial sums to the gradients of the biases, in the order of samples and heads.
void Attention::add_partial_sums(const Inputs& in, const float* positions, const float* times,
                                 const ModuleCall& call) const {
  float* of_positions = position_bias_ ? gradients_[0] : nullptr;
  float* of_times = buckets_ ? gradients_.back() : nullptr;
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t base = in.k.offsets[s], count = in.k.offsets[s + 1] - base;
    for (int64_t h = 0; h < heads_; ++h) {
      const float* from = positions + 2 * (base * heads_ + h * count);
      for (int64_t i = 0; of_positions && i < 2 * count - 1; ++i) of_positions[length_ - count + i] += from[i];
      for (int64_t b = 0; of_times && b <= buckets_->count(); ++b)
        of_times[b] += times[(s * heads_ + h) * (buckets_->count() + 1) + b];
    }
  }
}

void Attention::back_tile(const ModuleCall& call, const Inputs& in, const Tile& tile, const Scratch& scratch,
                          const Gradients& grads) const {
  const Visible sees = visible(in, tile);
  make_logits(in, tile, sees, scratch.logits);
  weigh(tile, sees, scratch.logits, scratch.weights);
  const int64_t m = tile.rows(), keys = tile.keys(), wide = in.v.width, width = in.value_width;
  const int64_t row = tile.queries + tile.begin, key = tile.base + tile.first_key, column = tile.head * width;
  const float* dout = grads.out + row * wide + column;
  // weigh_back() reads a softmax's weights and not its logits; for the other kinds it is the reverse.
  float* applied = drops(call) && kind_ == Kind::kSoftmax ? scratch.logits : scratch.weights;
  if (drops(call)) drop(call, tile, scratch.weights, applied);
  if (grads.v) {
    multiply({'T', 'N', keys, width, m, 1, applied, keys, dout, wide, 1, grads.v + key * wide + column, wide});
  }
  multiply(
      {'N', 'T', m, keys, width, 1, dout, wide, in.v.rows + key * wide + column, wide, 0, scratch.gradients, keys});
  if (drops(call)) drop(call, tile, scratch.gradients, scratch.gradients);
  weigh_back(tile, sees, scratch);
  if (!parameters_.empty()) add_bias_gradients(in, tile, sees, scratch.gradients, grads);
  const int64_t kw = in.key_width, kwide = in.q.width, kcolumn = tile.head * kw;
  const float scale = scale_ != 0 ? static_cast<float>(scale_) : 1 / std::sqrt(static_cast<float>(kw));
  if (grads.q) {
    multiply({'N', 'N', m, kw, keys, scale, scratch.gradients, keys, in.k.rows + key * kwide + kcolumn, kwide, 0,
              grads.q + row * kwide + kcolumn, kwide});
  }
  if (grads.k) {
    multiply({'T', 'N', keys, kw, m, scale, scratch.gradients, keys, in.q.rows + row * kwide + kcolumn, kwide, 1,
              grads.k + key * kwide + kcolumn, kwide});
  }
}

void Attention::backward(const ModuleCall& call, tsr_module_context*) {
  if (nothing_comes_back(call)) return;
  const Inputs in = inputs_of(call);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  const int64_t positions = position_bias_ ? 2 * in.k.count * heads_ : 0;
  const int64_t times = buckets_ ? in.batch * heads_ * (buckets_->count() + 1) : 0;
  float* partial = partial_.at_least(host_, positions + times);
  std::fill_n(partial, positions + times, 0.0f);
  const Gradients grads{matrix(call.grad_outputs[0], in.q.count, in.v.width, "the gradient of attention's output"),
                        matrix_or_null(call.grad_inputs[0], in.q.count, in.q.width, "the gradient of the queries"),
                        matrix_or_null(call.grad_inputs[1], in.k.count, in.q.width, "the gradient of the keys"),
                        matrix_or_null(call.grad_inputs[2], in.k.count, in.v.width, "the gradient of the values"),
                        partial,
                        partial + positions};
  if (grads.k) std::fill_n(grads.k, in.k.count * in.q.width, 0.0f);
  if (grads.v) std::fill_n(grads.v, in.k.count * in.v.width, 0.0f);
  if (targets_) clear_gradient(call, call.inputs.size() - 1);
  for_tiles(
      in, [&](const Tile& tile, const Visible&, const Scratch& scratch) { back_tile(call, in, tile, scratch, grads); });
  if (!parameters_.empty()) add_partial_sums(in, partial, partial + positions, call);
}

}  // namespace tessera_dense
