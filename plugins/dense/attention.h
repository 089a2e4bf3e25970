// "attention": each row of a sequence becomes a weighted sum of the rows of its sample that its mask shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention_mask.h"
#include "sequences.h"
#include "weights.h"

namespace tessera_dense {

// Puts the time between two rows into a bucket by HSTU's formula: min(count, floor(ln(max(|d|, 1)) / 0.301)).
class TimeBuckets {
 public:
  explicit TimeBuckets(int64_t count);
  int64_t count() const { return std::ssize(edges_) - 1; }
  int64_t of(int64_t delta) const;

 private:
  std::vector<uint64_t> edges_;  // the smallest delta of each bucket
  std::vector<uint8_t> guess_;   // by a delta's bit width, the bucket from which to search upwards
};

// Options: "heads" (1); "kind": "softmax", "silu" or "linear"; the last two divide weights by "length"; "scale" of the
// products, by default 1 / sqrt(width of a head); "dropout" (0) of the weights; the fields of AttentionMask; "bias":
// "none", "position" for up to "length" rows, "time" with "buckets" (128), or "both". Inputs: queries, keys and values
// with the same rows, or with "last_rows" only the queries of each sample's last rows. Further inputs if the options
// need them: integer times of the rows, integer "next_times" of the samples, and "targets", which RowCounts reads.
// Parameters, shared by all heads: "position_bias" [2 length - 1], "time_bias" [buckets + 1].
class Attention : public tessera::sdk::Module {
 public:
  explicit Attention(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 private:
  // A call's inputs. `key_width` and `value_width` are the values that one head has of a row.
  struct Inputs {
    Sequence q, k, v;
    int64_t batch, key_width, value_width;
    const DLTensor *times, *next_times;
    RowCounts targets;
    const float *position_bias, *time_bias;
  };
  struct Gradients {
    const float* out;
    float *q, *k, *v;
    float *position_bias, *time_bias;  // partial sums of each sample and head; unused without that bias
  };
  // Some rows of a sample for one head, and the range of keys that they see.
  struct Tile {
    int64_t sample, head;
    int64_t base, count;          // index of the sample's first key, and how many rows the sample has
    int64_t queries;              // row r of the sample is query `queries` + r
    int64_t begin, end;           // the tile has rows [begin, end) of the sample
    int64_t first_key, last_key;  // [first_key, last_key) covers the rows that they see
    int64_t rows() const { return end - begin; }
    int64_t keys() const { return last_key - first_key; }
  };
  // Each thread's memory for one tile.
  struct Scratch {
    float *logits, *weights, *gradients;
  };

  void read_mask(tessera::sdk::Options& options);
  void read_bias(tessera::sdk::Options& options);
  Inputs inputs_of(const tessera::sdk::ModuleCall& call);
  void check_lengths(const Inputs& in) const;
  Visible visible(const Inputs& in, const Tile& tile) const;
  int64_t bucket(const Inputs& in, const Tile& tile, int64_t i, int64_t j) const;
  // Calls body(tile, visible, scratch) for all tiles of all samples and heads; those of one sample and head are in
  // order.
  template <class Body>
  void for_tiles(const Inputs& in, const Body& body);
  void make_logits(const Inputs& in, const Tile& tile, const Visible& sees, float* logits) const;
  void weigh(const Tile& tile, const Visible& sees, float* logits, float* weights) const;
  void weigh_back(const Tile& tile, const Visible& sees, const Scratch& scratch) const;
  void add_bias_gradients(const Inputs& in, const Tile& tile, const Visible& sees, const float* dlogits,
                          const Gradients& grads) const;
  bool drops(const tessera::sdk::ModuleCall& call) const { return call.trains && dropout_ > 0; }
  // Drops values of a tile [rows, keys]. Every call in a step drops the same weights.
  void drop(const tessera::sdk::ModuleCall& call, const Tile& tile, const float* from, float* to) const;
  void add_partial_sums(const Inputs& in, const float* positions, const float* times,
                        const tessera::sdk::ModuleCall& call) const;
  void back_tile(const tessera::sdk::ModuleCall& call, const Inputs& in, const Tile& tile, const Scratch& scratch,
                 const Gradients& grads) const;

  tessera::sdk::Host host_;
  const RowLoops& loops_;
  int64_t heads_;
  enum class Kind { kSoftmax, kSilu, kLinear };
  Kind kind_ = Kind::kSoftmax;
  double scale_;    // 0: 1 / sqrt(width of a head)
  double dropout_;  // probability that training drops a weight
  int64_t length_;
  AttentionMask mask_;
  bool position_bias_ = false, times_ = false, next_times_ = false, targets_ = false, last_rows_ = false;
  std::optional<TimeBuckets> buckets_;
  std::vector<tessera::sdk::Parameter> parameters_;
  std::vector<float*> pointers_, gradients_;
  Floats scratch_, partial_;
};

}  // namespace tessera_dense
