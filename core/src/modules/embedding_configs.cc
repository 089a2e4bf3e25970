#include "tessera/embedding_configs.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>
#include <unordered_map>

#include "config/fnv1a.h"
#include "modules/start_values.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

void check_table(const EmbeddingBagConfig& t) {
  if (t.name.empty()) fail(Code::kInvalidArgument, "a table has no name");
  const int64_t least = t.remapping ? 0 : 1;  // a table whose rows have their own ids may start without rows
  if (t.num_embeddings < least || t.embedding_dim < 1) {
    fail(Code::kInvalidArgument, "table \"", t.name, "\" has ", t.num_embeddings, " rows of ", t.embedding_dim,
         " columns: both must be at least 1");
  }
  if (t.num_embeddings > INT64_MAX / 16 / t.embedding_dim) {
    fail(Code::kInvalidArgument, "table \"", t.name, "\" with ", t.num_embeddings, " rows of ", t.embedding_dim,
         " columns is larger than 64 bits can address");
  }
  if (is_integer(t.data_type)) {
    fail(Code::kInvalidArgument, "table \"", t.name, "\" has the type ", to_string(t.data_type),
         ": rows are floating point");
  }
  if (t.init_range && !(std::isfinite(*t.init_range) && *t.init_range >= 0)) {
    fail(Code::kInvalidArgument, "table \"", t.name, "\" has init_range ", *t.init_range, ": give 0 or more");
  }
  if (!(t.optimizer.max_gradient >= 0)) {
    fail(Code::kInvalidArgument, "table \"", t.name, "\" has max_gradient ", t.optimizer.max_gradient,
         ": give 0 (no clamp) or more");
  }
}

void check_features(const EmbeddingBagConfig& t) {
  std::set<std::string_view> seen;
  for (const std::string& f : t.feature_names) {
    if (f.empty()) fail(Code::kInvalidArgument, "table \"", t.name, "\" has a feature without a name");
    if (!seen.insert(f).second) {
      fail(Code::kInvalidArgument, "table \"", t.name, "\" names the feature \"", f, "\" twice");
    }
  }
}

}  // namespace

PoolingType pooling_from(std::string_view name) {
  for (PoolingType p : {PoolingType::kNone, PoolingType::kSum, PoolingType::kMean, PoolingType::kMax}) {
    if (same_word(name, to_string(p))) return p;
  }
  fail(Code::kInvalidArgument, "unknown pooling \"", name, "\": one of SUM, MEAN, MAX, NONE");
}

const char* to_string(PoolingType pooling) {
  switch (pooling) {
    case PoolingType::kNone:
      return "NONE";
    case PoolingType::kSum:
      return "SUM";
    case PoolingType::kMean:
      return "MEAN";
    case PoolingType::kMax:
      return "MAX";
  }
  return "unknown";
}

BoundsCheckMode bounds_check_from(std::string_view name) {
  if (same_word(name, "fatal")) return BoundsCheckMode::kFatal;
  if (same_word(name, "ignore")) return BoundsCheckMode::kIgnore;
  if (same_word(name, "warning")) return BoundsCheckMode::kWarning;
  fail(Code::kInvalidArgument, "unknown bounds check \"", name, "\": one of fatal, ignore, warning");
}

std::vector<EmbeddingBagConfig> validated(std::vector<EmbeddingBagConfig> tables) {
  std::set<std::string_view> names;
  for (EmbeddingBagConfig& t : tables) {
    check_table(t);
    if (!names.insert(t.name).second) fail(Code::kInvalidArgument, "two tables are named \"", t.name, "\"");
    if (t.feature_names.empty()) t.feature_names = {t.name};
    check_features(t);
  }
  return tables;
}

std::vector<std::vector<std::string>> embedding_names_by_table(const std::vector<EmbeddingBagConfig>& tables) {
  const auto features_of = [](const EmbeddingBagConfig& t) {
    return t.feature_names.empty() ? std::vector<std::string>{t.name} : t.feature_names;
  };
  std::unordered_map<std::string, int> uses;
  for (const EmbeddingBagConfig& t : tables) {
    for (const std::string& f : features_of(t)) ++uses[f];
  }
  std::vector<std::vector<std::string>> names;
  for (const EmbeddingBagConfig& t : tables) {
    names.emplace_back();
    for (const std::string& f : features_of(t)) names.back().push_back(uses[f] > 1 ? f + "@" + t.name : f);
  }
  return names;
}

tsr_start_formula start_formula(const EmbeddingBagConfig& table, uint64_t seed, int64_t first_row, int64_t first_col) {
  const double range = table.init_range
                           ? *table.init_range
                           : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(table.num_embeddings, 1)));
  // 24 random bits k give (k + 1/2) / 2^23 in (-1, 1): symmetric, and exact in float32 before the one rounding.
  return {sizeof(tsr_start_formula), static_cast<float>(std::ldexp(range, -23)),
          sdk::mixed(sdk::Random(seed).bits() ^ fnv1a(table.name)), first_row, first_col};
}

void initial_values(const EmbeddingBagConfig& table, uint64_t seed, int64_t row, int64_t count, int64_t col,
                    int64_t cols, float* out) {
  TESSERA_CHECK(row >= 0 && count >= 0 && row + count <= table.num_embeddings, "rows of table ", table.name);
  TESSERA_CHECK(col >= 0 && cols >= 0 && col + cols <= table.embedding_dim, "columns of table ", table.name);
  const tsr_start_formula formula = start_formula(table, seed, row, col);
  for (int64_t i = 0; i < count; ++i) start_row(formula, row + i, cols, out + i * cols);
}

}  // namespace tessera
