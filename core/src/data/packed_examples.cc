// Serializes samples: labels, dense values, then for each column the starts of its bags, its ids and their weights.
#include <cstring>

#include "data/arriving_rows.h"

namespace tessera::data {
namespace {

template <class T>
void put(std::string& to, const T* values, size_t count) {
  if (count > 0) to.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

class Taker {
 public:
  explicit Taker(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  std::vector<T> take(size_t count) {
    if (count > bytes_.size() / sizeof(T)) fail(Code::kInternal, "samples that another rank has sent are cut off");
    std::vector<T> out(count);
    if (count > 0) std::memcpy(out.data(), bytes_.data(), count * sizeof(T));
    bytes_.remove_prefix(count * sizeof(T));
    return out;
  }

 private:
  std::string_view bytes_;
};

}  // namespace

std::string pack(const Examples& e) {
  const auto columns = static_cast<size_t>(e.num_columns()), rows = static_cast<size_t>(e.size());
  std::vector<std::vector<int64_t>> ids(columns), begins(columns, {0});
  std::vector<std::vector<float>> weights(columns);
  std::string out;
  const auto count = static_cast<int64_t>(rows);
  put(out, &count, 1);
  for (int64_t s = 0; s < count; ++s) {
    for (size_t k = 0; k < e.label_form().values(); ++k) {
      const float label = e.label(s, k);
      put(out, &label, 1);
    }
  }
  for (int64_t s = 0; s < count; ++s) put(out, e.dense(s), static_cast<size_t>(e.num_dense()));
  for (int64_t s = 0; s < count; ++s) {
    int64_t at = 0;
    for (size_t k = 0; k < columns; ++k) {
      const int64_t end = at + (e.lengths(s) != nullptr ? e.lengths(s)[k] : 1);
      for (; at < end; ++at) {
        ids[k].push_back(e.wide() ? e.ids<int64_t>(s)[at] : e.ids<int32_t>(s)[at]);
        if (e.weighted()) weights[k].push_back(e.weights(s)[at]);
      }
      begins[k].push_back(std::ssize(ids[k]));
    }
  }
  for (size_t k = 0; k < columns; ++k) {
    put(out, begins[k].data(), begins[k].size());
    put(out, ids[k].data(), ids[k].size());
    put(out, weights[k].data(), weights[k].size());
  }
  return out;
}

void unpack(std::string_view bytes, Examples& out) {
  Taker from(bytes);
  const auto rows = static_cast<size_t>(from.take<int64_t>(1)[0]);
  const auto columns = static_cast<size_t>(out.num_columns());
  const std::vector<float> labels = from.take<float>(rows * out.label_form().values());
  const std::vector<float> dense = from.take<float>(rows * static_cast<size_t>(out.num_dense()));
  std::vector<std::vector<int64_t>> ids(columns), begins(columns);
  std::vector<std::vector<float>> weights(columns);
  std::vector<Examples::Bags> bags(columns);
  for (size_t k = 0; k < columns; ++k) {
    begins[k] = from.take<int64_t>(rows + 1);
    const auto count = static_cast<size_t>(begins[k].back());
    ids[k] = from.take<int64_t>(count);
    if (out.weighted()) weights[k] = from.take<float>(count);
    bags[k] = {ids[k].data(), begins[k].data(), out.weighted() ? weights[k].data() : nullptr};
  }
  out.append(labels, dense, bags);
}

}  // namespace tessera::data
