// Keyed-jagged features on a device, and bucketizing ids by the blocks that hold their rows.
#include <limits>

#include "sparse/arrays.h"
#include "tessera/device.h"
#include "tessera/jagged_tensor.h"

namespace tessera {
namespace {

// A tsr_jagged and the views that it points to.
struct RawJagged {
  explicit RawJagged(const KeyedJaggedTensor& input)
      : ids(input.values().dl()), offsets(input.offsets().dl()), weights(input.weights_or_null().dl()) {
    raw = {sizeof(raw),    static_cast<int32_t>(input.keys().size()),
           input.stride(), &ids,
           &offsets,       input.weights_or_null().defined() ? &weights : nullptr};
  }
  RawJagged(const RawJagged&) = delete;
  RawJagged& operator=(const RawJagged&) = delete;
  tsr_jagged raw;

 private:
  DLTensor ids, offsets, weights;
};

// The output of an operator on jagged features.
struct JaggedOutput {
  JaggedOutput(const KeyedJaggedTensor& input, int64_t bags, int64_t num_ids) {
    DeviceStream& stream = *input.values().stream();
    lengths = stream.empty({bags}, input.offsets().dtype());
    offsets = stream.empty({bags + 1}, input.offsets().dtype());
    values = stream.empty({num_ids}, input.values().dtype());
    if (input.weights_or_null().defined()) weights = stream.empty({num_ids});
  }
  // Calls call(tsr_jagged_output).
  template <class Call>
  void write(const Tensor& positions, const Call& call) const {
    const DLTensor l = lengths.dl(), o = offsets.dl(), v = values.dl(), w = weights.dl(), p = positions.dl();
    call(tsr_jagged_output{sizeof(tsr_jagged_output), 0, &l, &o, &v, weights.defined() ? &w : nullptr,
                           positions.defined() ? &p : nullptr});
  }
  Tensor lengths, offsets, values, weights;
};

void check_blocks(const KeyedJaggedTensor& input, std::span<const int64_t> block_rows, int64_t blocks) {
  if (input.variable_stride_per_key())
    fail(Code::kUnimplemented, "features of variable stride are not bucketized: give them one stride");
  if (block_rows.size() != input.keys().size())
    fail(Code::kInvalidArgument, block_rows.size(), " block sizes for ", input.keys().size(),
         " keys: give one for each");
  if (blocks < 1 || blocks > std::numeric_limits<int32_t>::max())
    fail(Code::kInvalidArgument, "ids cannot be bucketized into ", blocks, " blocks: give at least one");
  for (size_t k = 0; k < block_rows.size(); ++k) {
    if (block_rows[k] < 1)
      fail(Code::kInvalidArgument, "a block of feature \"", input.keys()[k], "\" cannot have ", block_rows[k],
           " rows: give at least one");
  }
  const DType dtype = input.values().dtype();
  if (dtype != DType::kInt32 && dtype != DType::kInt64)
    fail(Code::kInvalidArgument, "ids are ", to_string(dtype), ": give int32 or int64");
}

Bucketized on_device(const KeyedJaggedTensor& input, std::span<const int64_t> block_rows, int64_t blocks,
                     KeyedJaggedTensor::Options options) {
  DeviceStream& stream = *input.values().stream();
  const int64_t n = input.values().numel();
  const RawJagged raw(input);
  const JaggedOutput out(input, blocks * static_cast<int64_t>(input.keys().size()) * input.stride(), n);
  const Tensor positions = stream.empty({n}, DType::kInt64);
  const Tensor rows = stream.upload(Tensor::from(std::vector<int64_t>(block_rows.begin(), block_rows.end())));
  out.write(positions,
            [&](const tsr_jagged_output& to) { stream.bucketize(raw.raw, static_cast<int32_t>(blocks), rows, to); });
  options.values = out.values;
  options.weights = out.weights;
  options.lengths = out.lengths;
  options.offsets = out.offsets;
  return {KeyedJaggedTensor(std::move(options)), positions};
}

// Counts the ids of each block and bag, then places them. T is the type of the ids.
template <class T>
class Bucketizer {
 public:
  Bucketizer(const KeyedJaggedTensor& input, std::span<const int64_t> block_rows, int64_t blocks)
      : input_(input),
        block_rows_(block_rows),
        bags_(static_cast<int64_t>(input.keys().size()) * input.stride()),
        next_(static_cast<size_t>(blocks * bags_)),
        blocks_(blocks) {}

  Bucketized run(KeyedJaggedTensor::Options options) {
    const int64_t n = input_.offset_per_key().back();  // later values are in no bag
    check_bags(n);
    for_each([&](size_t bucket, int64_t, int64_t) { ++next_[bucket]; });
    options.lengths = Tensor::from(next_).to(input_.offsets().dtype());
    int64_t total = 0;
    for (int64_t& next : next_) total += std::exchange(next, total);
    const bool weighted = input_.weights_or_null().defined();
    options.values = Tensor::empty({n}, input_.values().dtype());
    if (weighted) options.weights = Tensor::empty({n});
    Tensor positions = Tensor::empty({n}, DType::kInt64);
    for_each([&](size_t bucket, int64_t at, int64_t row) {
      const int64_t to = next_[bucket]++;
      options.values.data<T>()[to] = static_cast<T>(row);
      if (weighted) options.weights.data<float>()[to] = input_.weights().data<float>()[at];
      positions.data<int64_t>()[at] = to;
    });
    return {KeyedJaggedTensor(std::move(options)), positions};
  }

 private:
  // The totals of the keys were checked, but lengths inside a key may be negative.
  void check_bags(int64_t n) const {
    int64_t before = 0;
    for (int64_t i = 0; i <= bags_; ++i) {
      const int64_t offset = sparse::integer_at(input_.offsets(), i);
      if (offset < before || offset > n || (i == 0 && offset != 0))
        fail(Code::kOutOfRange, "offsets must begin with 0, not descend, and lead to no more than ", n, " values");
      before = offset;
    }
  }

  // Calls body(block and bag, position of the id, the id's row in the block).
  template <class Body>
  void for_each(const Body& body) const {
    const T* ids = input_.values().data<T>();
    const Tensor& offsets = input_.offsets();
    for (int64_t bag = 0; bag < bags_; ++bag) {
      const auto key = static_cast<size_t>(bag / input_.stride());
      for (int64_t at = sparse::integer_at(offsets, bag); at < sparse::integer_at(offsets, bag + 1); ++at) {
        const int64_t id = ids[at], block = id / block_rows_[key];
        if (id < 0 || block >= blocks_) {
          fail(Code::kOutOfRange, "feature \"", input_.keys()[key], "\", sample ", bag % input_.stride(), ": id ", id,
               " is in none of ", blocks_, " blocks of ", block_rows_[key], " rows");
        }
        body(static_cast<size_t>(block * bags_ + bag), at, id % block_rows_[key]);
      }
    }
  }

  const KeyedJaggedTensor& input_;
  std::span<const int64_t> block_rows_;
  int64_t bags_;
  std::vector<int64_t> next_;
  int64_t blocks_;
};

}  // namespace

Bucketized bucketize_by_blocks(const KeyedJaggedTensor& input, std::span<const int64_t> block_rows, int64_t blocks) {
  check_blocks(input, block_rows, blocks);
  DeviceStream* stream = input.values().stream();
  if (stream && !stream->handles_jagged()) {
    const Bucketized made = bucketize_by_blocks(input.to_host(), block_rows, blocks);
    return {made.features.to(*stream), stream->to_device(made.positions)};
  }
  KeyedJaggedTensor::Options options;
  for (int64_t k = 0; k < blocks; ++k)
    options.keys.insert(options.keys.end(), input.keys().begin(), input.keys().end());
  options.stride = input.stride();
  if (stream) return on_device(input, block_rows, blocks, std::move(options));
  input.offset_per_key();  // refuses offsets that descend or lead beyond the ids
  sparse::rows_of(input.values(), 0, input.offset_per_key().back(), "values");
  return input.values().dtype() == DType::kInt32
             ? Bucketizer<int32_t>(input, block_rows, blocks).run(std::move(options))
             : Bucketizer<int64_t>(input, block_rows, blocks).run(std::move(options));
}

KeyedJaggedTensor KeyedJaggedTensor::copied(DeviceStream& stream, bool to_device) const {
  KeyedJaggedTensor out = *this;
  if (to_device) out.length_per_key();
  for (Tensor* t : {&out.values_, &out.weights_, &out.lengths_, &out.offsets_}) {
    if (t->defined() && (t->stream() != nullptr) != to_device)
      *t = to_device ? stream.to_device(*t) : stream.to_host(*t);
  }
  return out;
}

KeyedJaggedTensor KeyedJaggedTensor::to(DeviceStream& stream) const { return copied(stream, true); }

KeyedJaggedTensor KeyedJaggedTensor::to_host() const {
  return values_.stream() ? copied(*values_.stream(), false) : *this;
}

bool KeyedJaggedTensor::permutes_by_kernel() const {
  const DeviceStream* stream = values_.stream();
  const int64_t bytes = size_of(values_.dtype());
  return stream && stream->handles_jagged() && !variable_stride_per_key() && !keys_.empty() && values_.dim() == 1 &&
         (bytes == 4 || bytes == 8) && (!weights_.defined() || weights_.dim() == 1) &&
         (!lengths_.defined() || lengths_.dtype() == offsets().dtype());
}

void KeyedJaggedTensor::permute_by_kernel(const std::vector<int64_t>& indices, Options& options) const {
  DeviceStream& stream = *values_.stream();
  int64_t num_ids = 0;
  for (int64_t i : indices) num_ids += length_per_key()[i];
  sparse::rows_of(values_, 0, offset_per_key().back(), "values");
  const RawJagged raw(*this);
  const JaggedOutput out(*this, static_cast<int64_t>(indices.size()) * stride_, num_ids);
  const Tensor order = stream.upload(Tensor::from(std::vector<int32_t>(indices.begin(), indices.end())));
  out.write({}, [&](const tsr_jagged_output& to) { stream.permute(raw.raw, order, to); });
  options.values = out.values;
  options.weights = out.weights;
  options.lengths = out.lengths;
  options.offsets = out.offsets;
}

}  // namespace tessera
