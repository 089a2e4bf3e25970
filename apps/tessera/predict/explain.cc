#include "predict/explain.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>

#include "formatted.h"
#include "predict/field_rows.h"
#include "tessera/error.h"
#include "tessera/sdk/random.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostRows = 100000;  // from which the other rows are drawn
constexpr int64_t kReadBatch = 1024;

// The scores of one head for rows of which some fields come from others.
class Exchanged {
 public:
  Exchanged(Predictor& predictor, const FieldRows& rows, size_t output)
      : predictor_(predictor), rows_(rows), output_(output) {}

  // `base`: the row that gives most values; `others`: for each score the row that gives those of `field`.
  std::vector<float> scores(const std::vector<uint32_t>& base, const Field& field,
                            const std::vector<uint32_t>& others) {
    std::vector<Bags> bags(rows_.features.size());
    std::vector<PredictInput::Feature> features;
    const auto takes = [](const std::vector<size_t>& list, size_t i) {
      return std::find(list.begin(), list.end(), i) != list.end();
    };
    for (size_t f = 0; f < bags.size(); ++f) {
      bags[f] = rows_.features[f].in_order(takes(field.features, f) ? others : base);
      features.push_back(bags[f].rows(0, base.size()));
    }
    std::vector<float> dense;
    for (size_t r = 0; r < base.size(); ++r) {
      for (size_t d = 0; d < rows_.width; ++d) {
        const uint32_t from = takes(field.dense, d) ? others[r] : base[r];
        dense.push_back(rows_.dense[from * rows_.width + d]);
      }
    }
    std::vector<float> out(base.size());
    std::vector<std::span<float>> outputs(predictor_.model().outputs.size());
    outputs[output_] = out;
    predictor_.predict_outputs({static_cast<int64_t>(base.size()), dense, features}, outputs);
    return out;
  }

 private:
  Predictor& predictor_;
  const FieldRows& rows_;
  size_t output_;
};

struct Part {
  std::string column;
  double moved = 0;
};

void print_row(int64_t row, float score, const std::vector<Part>& parts, bool as_json, std::ostream& out) {
  if (as_json) {
    nlohmann::ordered_json line = {{"row", row}, {"score", score}, {"moved_by", nlohmann::ordered_json::object()}};
    for (const Part& p : parts) line["moved_by"][p.column] = p.moved;
    out << line.dump() << '\n';
    return;
  }
  out << formatted("row %lld: score %.4f", static_cast<long long>(row), static_cast<double>(score)) << '\n';
  size_t widest = 0;
  for (const Part& p : parts) widest = std::max(widest, p.column.size());
  for (const Part& p : parts)
    out << "  " << std::left << std::setw(static_cast<int>(widest)) << p.column << "  " << formatted("%+.4f", p.moved)
        << '\n';
}

}  // namespace

void print_explanations(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts,
                        const std::vector<AskedHead>& heads, const ExplainOptions& options, std::ostream& out) {
  if (heads.size() != 1 || heads[0].width != 1)
    fail(Code::kInvalidArgument, "--explain explains one score for each row: name its head with --head");
  const FieldRows rows = read_rows(predictor.model(), data, parts, kReadBatch, kMostRows);
  if (rows.count == 0) fail(Code::kInvalidArgument, "--explain needs rows, and there are none in ", data.name);
  Exchanged exchanged(predictor, rows, heads[0].output);
  const std::vector<Field> fields = fields_of(predictor.model(), data);
  std::vector<uint32_t> others = sdk::shuffled(rows.count, 1);
  others.resize(std::min(others.size(), static_cast<size_t>(options.others)));
  const auto explained = std::min(rows.count, static_cast<size_t>(options.rows));
  for (size_t row = 0; row < explained; ++row) {
    const float score = exchanged.scores({static_cast<uint32_t>(row)}, Field(), {})[0];
    const std::vector<uint32_t> base(others.size(), static_cast<uint32_t>(row));
    std::vector<Part> moved;
    for (const Field& field : fields) {
      const std::vector<float> scores = exchanged.scores(base, field, others);
      const double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(scores.size());
      moved.push_back({field.name, static_cast<double>(score) - mean});
    }
    std::stable_sort(moved.begin(), moved.end(),
                     [](const Part& a, const Part& b) { return std::abs(a.moved) > std::abs(b.moved); });
    print_row(static_cast<int64_t>(row), score, moved, options.as_json, out);
  }
}

}  // namespace tessera::cli
