#include "predict/items.h"

#include <cstdio>
#include <ostream>

#include "retrieval/item_vectors.h"
#include "vectors_file.h"

namespace tessera::cli {

void predict_items(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts, int64_t batch,
                   bool as_json, std::ostream& out) {
  const auto k = static_cast<size_t>(predictor.model().outputs.at(0).width);
  if (!as_json) out << "row,rank,item,score\n";
  int64_t row = 0;
  const auto number = [](float value) {
    char text[32];
    return std::string(text,
                       static_cast<size_t>(std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value))));
  };
  const auto write = [&](const std::vector<std::vector<float>>& values, const Batch& of) {
    for (size_t s = 0; s < static_cast<size_t>(of.labels.numel()); ++s, ++row) {
      std::string items, scores;
      for (size_t i = s * k; i < (s + 1) * k; ++i) {
        const std::string item = std::to_string(static_cast<int64_t>(values[1][i])), score = number(values[0][i]);
        if (!as_json) out << row << ',' << i - s * k + 1 << ',' << item << ',' << score << '\n';
        items += (items.empty() ? "" : ", ") + item;
        scores += (scores.empty() ? "" : ", ") + score;
      }
      if (as_json) out << "{\"row\": " << row << ", \"items\": [" << items << "], \"scores\": [" << scores << "]}\n";
    }
  };
  for (const Samples& part : parts) predict_all(predictor, data, part, batch, {k, k}, write);
}

void predict_vectors(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts, int64_t batch,
                     const std::string& path) {
  std::vector<size_t> widths(predictor.model().outputs.size(), 0);
  widths.back() = static_cast<size_t>(predictor.model().outputs.back().width);
  std::vector<float> all;
  const auto keep = [&](const std::vector<std::vector<float>>& values, const Batch&) {
    all.insert(all.end(), values.back().begin(), values.back().end());
  };
  for (const Samples& part : parts) predict_all(predictor, data, part, batch, widths, keep);
  const auto width = static_cast<int64_t>(widths.back());
  const Tensor vectors = Tensor::from<float>(all, {std::ssize(all) / width, width});
  if (is_vectors_file(path))
    write_vectors_file(path, vectors, {});
  else
    retrieval::write_vectors(path, vectors);
}

}  // namespace tessera::cli
