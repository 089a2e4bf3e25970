// A KeyedJaggedTensor with any lengths, offsets, strides and types, and operations on it.
#include <cstdint>
#include <vector>

#include "fuzz.h"
#include "tessera/jagged_tensor.h"

namespace tessera::fuzz {
namespace {

// Numbers from an input, mostly small, as a tensor of one type or the other.
template <class T>
Tensor numbers(Taker& taker, size_t n) {
  std::vector<T> out;
  for (size_t i = 0; i < n; ++i) {
    const auto small = taker.take<int8_t>();
    out.push_back(small == INT8_MIN ? taker.take<T>() : static_cast<T>(small));
  }
  return Tensor::from(out);
}

Tensor indices(Taker& taker, size_t n, bool wide) {
  return wide ? numbers<int64_t>(taker, n) : numbers<int32_t>(taker, n);
}

struct KjtShape {
  explicit KjtShape(Taker& taker)
      : how(taker.take<uint8_t>()),
        keys(taker.take<uint8_t>() % 5),
        ids(taker.take<uint8_t>()),
        bags(taker.take<uint8_t>() % 64) {}
  bool has(int bit) const { return (how >> bit & 1) != 0; }
  uint8_t how;
  size_t keys, ids, bags;
};

KeyedJaggedTensor made(Taker& taker, const KjtShape& shape) {
  KeyedJaggedTensor::Options options;
  for (size_t k = 0; k < shape.keys; ++k) options.keys.push_back(std::string(1, static_cast<char>('a' + k)));
  options.values = indices(taker, shape.ids, shape.has(0));
  if (shape.has(1)) options.weights = numbers<float>(taker, shape.ids);
  if (shape.has(2)) options.lengths = indices(taker, shape.bags, shape.has(3));
  if (shape.has(4)) options.offsets = indices(taker, shape.bags + 1, shape.has(3));
  if (shape.has(5)) options.stride = taker.take<int8_t>();
  if (shape.has(6)) {
    for (size_t k = 0; k < shape.keys; ++k)
      options.stride_per_key_per_rank.push_back({taker.take<int8_t>(), taker.take<int8_t>()});
  }
  return KeyedJaggedTensor(std::move(options));
}

void use(const KeyedJaggedTensor& kjt, Taker& taker) {
  require(kjt.length_per_key().size() == kjt.keys().size(), "each key has a length");
  require(kjt.offset_per_key().size() == kjt.keys().size() + 1, "each key has a place");
  (void)kjt.stride_per_key();
  (void)kjt.str();
  std::vector<int64_t> order, segments;
  for (size_t k = 0; k < kjt.keys().size(); ++k) order.push_back(taker.take<int8_t>());
  for (size_t k = 0; k < 2; ++k) segments.push_back(taker.take<int8_t>());
  taken([&] { (void)kjt.permute(order).str(); });
  taken([&] {
    for (const KeyedJaggedTensor& part : kjt.split(segments)) (void)part.str();
  });
  taken([&] {
    for (const auto& [key, feature] : kjt.to_dict()) {
      (void)feature.to_dense();
      (void)feature.to_padded_dense(taker.take<int8_t>());
    }
  });
  taken([&] { (void)KeyedJaggedTensor::concat({kjt, kjt}).str(); });
  const std::vector<int64_t> block(kjt.keys().size(), taker.take<int8_t>());
  taken([&] { bucketize_by_blocks(kjt, block, taker.take<int8_t>()); });
}

}  // namespace

void fuzz_jagged(Input input) {
  Taker taker(input);
  const KjtShape shape(taker);
  taken([&] { use(made(taker, shape), taker); });
}

}  // namespace tessera::fuzz
