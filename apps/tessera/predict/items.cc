#include "predict/items.h"

#include <cstdio>
#include <ostream>

#include "predict/model_data.h"
#include "retrieval/item_vectors.h"

namespace tessera::cli {
namespace {

// body(outputs of a batch, its samples). `outputs`: as Predictor::predict_outputs(), those with a width.
template <class Body>
void for_each_batch(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts, int64_t batch,
                    const std::vector<size_t>& widths, const Body& body) {
  BatchInput input(predictor.model(), data.columns, static_cast<int64_t>(data.dense.size()));
  std::vector<std::vector<float>> values(widths.size());
  for (const Samples& part : parts) {
    BatchReader reader(part, {.batch = batch});
    for (Batch b; reader.next(b);) {
      const auto samples = static_cast<size_t>(b.labels.numel());
      std::vector<std::span<float>> outputs;
      for (size_t o = 0; o < widths.size(); ++o) {
        values[o].resize(samples * widths[o]);
        outputs.emplace_back(values[o]);
      }
      predictor.predict_outputs(input.from(b), outputs);
      body(values, samples);
    }
  }
}

}  // namespace

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
  for_each_batch(predictor, data, parts, batch, {k, k}, [&](const auto& values, size_t samples) {
    for (size_t s = 0; s < samples; ++s, ++row) {
      std::string items, scores;
      for (size_t i = s * k; i < (s + 1) * k; ++i) {
        const std::string item = std::to_string(static_cast<int64_t>(values[1][i])), score = number(values[0][i]);
        if (!as_json) out << row << ',' << i - s * k + 1 << ',' << item << ',' << score << '\n';
        items += (items.empty() ? "" : ", ") + item;
        scores += (scores.empty() ? "" : ", ") + score;
      }
      if (as_json) out << "{\"row\": " << row << ", \"items\": [" << items << "], \"scores\": [" << scores << "]}\n";
    }
  });
}

void predict_vectors(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts, int64_t batch,
                     const std::string& path) {
  std::vector<size_t> widths(predictor.model().outputs.size(), 0);
  widths.back() = static_cast<size_t>(predictor.model().outputs.back().width);
  std::vector<float> all;
  for_each_batch(predictor, data, parts, batch, widths, [&](const auto& values, size_t) {
    all.insert(all.end(), values.back().begin(), values.back().end());
  });
  const auto width = static_cast<int64_t>(widths.back());
  retrieval::write_vectors(path, Tensor::from<float>(all, {std::ssize(all) / width, width}));
}

}  // namespace tessera::cli
