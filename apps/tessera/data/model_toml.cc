#include "data/model_toml.h"

#include <algorithm>
#include <set>

#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr double kValidated = 0.1;  // share of the training rows

int64_t trained_rows(const ModelFacts& facts) {
  return static_cast<int64_t>(static_cast<double>(facts.rows) * (1 - facts.test_fraction) * (1 - kValidated));
}

// Chooses a batch for about 200 steps per epoch, within 32 to 1024 rows.
int64_t batch_of(int64_t rows) {
  constexpr int64_t kSmallest = 32, kLargest = 1024, kSteps = 200;
  int64_t batch = kSmallest;
  while (batch < kLargest && rows / batch > kSteps) batch *= 2;
  return batch;
}

int64_t epochs_of(int64_t rows) {
  constexpr int64_t kFewest = 4, kMost = 25, kSamples = 1000000;  // kSamples: rows to train on in all epochs together
  return std::clamp(kSamples / std::max<int64_t>(rows, 1), kFewest, kMost);
}

// Small batches have noisy gradients, so the dense layers then take smaller steps.
double dense_rate_of(int64_t batch) {
  constexpr double kPerSample = 0.001 / 32, kMost = 0.003;
  return std::min(kMost, kPerSample * static_cast<double>(batch));
}

// The error of a number goes on falling, but not at each validation, until the learning rate is low. In few rows it
// depends on a handful of outliers, so no validation tells which model is best.
std::string validation_toml(const ModelFacts& facts, bool real, bool in_time) {
  constexpr double kFew = 1000;  // rows of a validation
  constexpr int64_t kSmall = 5000;
  const std::string out = str_cat("\n[validation]\nfraction = ", kValidated, "\n", in_time ? "split = \"last\"\n" : "");
  if (real && kValidated * static_cast<double>(trained_rows(facts)) < kFew)
    return out + comment("So few rows do not tell which epoch is best: the last model is tested and saved.");
  return str_cat(out, "patience = ", real || facts.rows < kSmall ? 8 : 3,
                 "\nrestore_best = true  # the model that validated best is tested and saved\n");
}

// Makes a name of a layer or head: letters, digits, _ and -.
std::string plain_name(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (plain || (!out.empty() && out.back() != '_')) out += plain ? c : '_';
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

class Graph {
 public:
  Graph(const ColumnsToml& features, int64_t dim) : dim_(dim), taken_(features.tables.begin(), features.tables.end()) {
    taken_.insert({"dense", "pooled", "row", "label"});
    taken_.insert(features.vectors.begin(), features.vectors.end());
    inputs_ = features.dense > 0 ? R"("dense", "pooled")" : R"("pooled")";
    for (const std::string& vector : features.vectors) inputs_ += ", " + quoted(vector);
  }

  std::string shared(bool several, bool real);
  std::string head(const ColumnSeen& label, bool several);

 private:
  std::string layer(const std::string& name, const std::string& type, const std::string& inputs,
                    const std::string& options = "") const {
    return str_cat("\n[[layer]]\nname = ", quoted(name), "\ntype = \"", type, "\"\ninputs = [", inputs, "]\n",
                   options.empty() ? "" : str_cat("options = { ", options, " }\n"));
  }
  // Returns a name that no table, layer or head has.
  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 2; taken_.contains(name) || taken_.contains(name + "_label"); ++i) name = str_cat(wanted, "_", i);
    taken_.insert(name);
    return name;
  }

  int64_t dim_;
  std::set<std::string> taken_;
  std::string inputs_, fm_, deep_;
};

// `real`: a label is a number, which takes a wider mlp than the odds of a yes.
std::string Graph::shared(bool several, bool real) {
  fm_ = free_name("fm");
  deep_ = free_name("deep");
  const std::string hidden = real ? "256, 128, 64" : "128, 64";
  const std::string widths =
      several ? str_cat("widths = [", hidden, "], final_activation = \"relu\"") : str_cat("widths = [", hidden, ", 1]");
  return layer(fm_, "fm", R"("pooled")", str_cat("dim = ", dim_)) + layer(deep_, "mlp", inputs_, widths);
}

std::string Graph::head(const ColumnSeen& label, bool several) {
  const std::string of = several ? plain_name(label.name) : "";
  const std::string behind = of.empty() ? "" : "_" + of;
  const std::string first = free_name("first" + behind), logit = free_name("logit" + behind);
  std::string out = layer(first, "linear", inputs_), deep = deep_;
  if (several) {
    deep = free_name("top" + behind);
    out += layer(deep, "linear", cli::quoted(deep_));
  }
  out += layer(logit, "sum", str_cat(quoted(first), ", ", quoted(fm_), ", ", quoted(deep)));
  const bool real = label_form(label) == LabelForm::kReal;
  std::string input = logit, weight;
  if (real) {
    const double deviation = std::max(label.numbers.deviation(), 1e-30);
    input = free_name("scale" + behind);
    out += layer(input, "affine", quoted(logit),
                 str_cat("factor = ", short_number(deviation), ", offset = ", short_number(label.numbers.mean())));
    weight = str_cat("weight = ", short_number(1 / (deviation * deviation)), "\n");
  }
  const std::string name = free_name(of.empty() ? "prediction" : of);
  return str_cat(out, "\n[[head]]\nname = ", quoted(name), "\ninput = ", quoted(input), "\nloss = \"",
                 real ? "mse" : "binary_cross_entropy", "\"\nlabel = ", quoted(label.name), "\n", weight);
}

}  // namespace

std::string data_sizes(const ModelFacts& facts) {
  const int64_t rows = trained_rows(facts);
  return str_cat("batch = ", batch_of(rows), "\nepochs = ", epochs_of(rows), "\n");
}

std::string model_toml(const std::vector<ColumnSeen>& columns, const Labels& labels, const ColumnsToml& features,
                       const ModelFacts& facts, bool in_time) {
  constexpr size_t kMany = 100;  // number of tables from which on rows are narrower
  const int64_t dim = features.tables.size() > kMany ? 4 : 8;
  const bool several = labels.columns.size() > 1;
  const bool real = std::any_of(labels.columns.begin(), labels.columns.end(),
                                [&](size_t label) { return label_form(columns[label]) == LabelForm::kReal; });
  std::string out = validation_toml(facts, real, in_time);
  out += str_cat(
      "\n[table_defaults]\ninit_range = 0.01\n"
      "optimizer = { name = \"exact_rowwise_adagrad\", learning_rate = ",
      real ? 0.0075 : 0.005,
      ", eps = 1e-8 }\n"
      "\n[dense_optimizer]\nname = \"adam\"\nlearning_rate = ",
      dense_rate_of(batch_of(trained_rows(facts))),
      "\n\n[schedule]\ntables = [\"cosine?to=0.05\"]\ndense = [\"cosine?to=0.05\"]\n");
  out += "\n" + comment(str_cat("DeepFM: a linear model, a factorization machine and an mlp, whose cost grows with the "
                                "number of columns, ",
                                features.tables.size(), " of ids and ", features.dense,
                                " of numbers. `tessera model new` has others."));
  out += str_cat("[model]\nembedding_dim = ", dim, "\n");
  Graph graph(features, dim);
  out += graph.shared(several, real);
  for (const size_t l : labels.columns) out += graph.head(columns[l], several);
  return out;
}

}  // namespace tessera::cli
