#include "onnx/columns.h"

#include <algorithm>

#include "config/json.h"

namespace tessera::cli {

struct ColumnWriter::Column {
  std::string name, field, as, table, take = "value", ids;
  std::vector<std::string> transform;
  double mean = 0, deviation = 1;
  bool has_missing = false;
  double missing = 0;  // the number in the place of a missing one
  int64_t width = 0;   // of a vector
  std::vector<double> bounds;
  bool has(const char* what) const { return std::find(transform.begin(), transform.end(), what) != transform.end(); }
  bool takes_time() const { return take != "value" && take != "missing"; }
};

ColumnWriter::~ColumnWriter() = default;

ColumnWriter::ColumnWriter(GraphWriter& graph, const std::string& encoding) : g_(graph) {
  if (encoding.empty())
    fail(Code::kInvalidArgument, "--inputs columns: this model was not trained on [[column]]s, so it knows only rows");
  const config::JsonSource source{"the model's encoding", Code::kDataLoss};
  const nlohmann::ordered_json root = config::parse_json(encoding, source);
  const config::JsonObject all(root, source);
  for (const config::JsonObject& j : all.objects("columns")) {
    Column& c = columns_.emplace_back();
    c.name = c.field = j.get<std::string>("name");
    c.as = j.get<std::string>("as");
    c.table = j.get<std::string>("table");
    j.read("column", c.field);
    j.read("take", c.take);
    c.ids = j.get<std::string>("ids", "cross");
    j.read("transform", c.transform);
    j.read("mean", c.mean);
    j.read("deviation", c.deviation);
    j.read("bounds", c.bounds);
    j.read("width", c.width);
    c.has_missing = j.has("missing");
    if (c.has_missing) c.missing = j.has("missing_value") ? j.get<double>("missing_value") : j.get<double>("missing");
    if (c.as == "ids" && c.ids == "vocabulary")
      vocabularies_[c.table] = all.object("vocabularies").get<std::vector<std::string>>(c.table.c_str());
  }
}

const ColumnWriter::Column& ColumnWriter::named(const std::string& feature) const {
  const auto at = std::find_if(columns_.begin(), columns_.end(),
                               [&](const Column& c) { return c.as == "ids" && c.name == feature; });
  TESSERA_CHECK(at != columns_.end(), "a feature of a model of columns is one of them");
  return *at;
}

// The input of a number: float64 [batch, 1], NaN if it is missing. Columns of one field share it.
std::string ColumnWriter::number(const Column& column) {
  const std::string& name = column.takes_time() ? column.name : column.field;
  const auto [at, added] = numbers_.emplace(name, name);
  if (!added) return at->second;
  if (column.takes_time())
    notes_.push_back(str_cat(column.name, ": the ", column.take, " of \"", column.field, "\", as a number"));
  return at->second = g_.input(name, OnnxType::kDouble, {"batch", "1"});
}

std::string ColumnWriter::words(const Column& column) {
  std::string name = column.name;
  const bool taken = std::any_of(columns_.begin(), columns_.end(), [&](const Column& c) {
    return &c != &column && c.field == name && (c.as == "dense" || c.ids == "bucket");
  });
  if (taken) {
    name += " text";
    notes_.push_back(str_cat(name, ": \"", column.field, "\" as text, beside the number"));
  }
  const std::string text = g_.input(name, OnnxType::kString, {"batch", name + " length"});
  return g_.label_encoder(text, vocabularies_.at(column.table));
}

std::string ColumnWriter::given_rows(const Column& column) {
  if (column.ids != "row")
    notes_.push_back(str_cat(column.name, ": rows of its table, because ONNX cannot compute a ",
                             column.ids == "hash" ? "hash" : column.ids));
  return g_.input(column.name, OnnxType::kInt64, {"batch", column.name + " length"});
}

std::string ColumnWriter::rows_of(const std::string& feature) {
  const Column& c = named(feature);
  if (c.ids == "vocabulary") return words(c);
  if (c.ids != "bucket" || c.takes_time()) return given_rows(c);
  const std::string value = number(c);
  // A bound is reached by the double, or by a float32 that was stored in it (reaches() in data/column_numbers.h).
  const std::string bounds = g_.doubles(c.bounds), narrow = g_.cast(value, OnnxType::kFloat);
  const std::string stored = g_.node("Equal", {g_.cast(narrow, OnnxType::kDouble), value});
  const std::string as_float =
      g_.node("And", {stored, g_.node("GreaterOrEqual", {narrow, g_.cast(bounds, OnnxType::kFloat)})});
  const std::string any = g_.node("Or", {g_.node("GreaterOrEqual", {value, bounds}), as_float});
  const std::string reached = g_.node("ReduceSum", {g_.cast(any, OnnxType::kInt64), g_.integers({-1})});
  return g_.node("Where", {g_.node("IsNaN", {narrow}), g_.integer(-1), reached});
}

std::string ColumnWriter::dense() {
  GraphWriter::Names parts;
  const auto constant = [&](double value) { return g_.doubles({value}); };
  for (const Column& c : columns_) {
    if (c.as != "dense") continue;
    std::string value = number(c);
    const std::string missing = g_.node("IsNaN", {g_.cast(value, OnnxType::kFloat)});
    if (c.take == "missing") {
      value = g_.cast(missing, OnnxType::kDouble);
    } else if (c.has_missing) {
      value = g_.node("Where", {missing, constant(c.missing), value});
    }
    if (c.has("log1p")) value = g_.node("Log", {g_.add(g_.maximum(value, constant(0)), constant(1))});
    if (c.has("standardise")) value = g_.divide(g_.subtract(value, constant(c.mean)), constant(c.deviation));
    parts.push_back(g_.cast(value, OnnxType::kFloat));
  }
  for (const Column& c : columns_) {
    if (c.as == "vector") parts.push_back(g_.input(c.name, OnnxType::kFloat, {"batch", std::to_string(c.width)}));
  }
  return g_.concat(parts);
}

}  // namespace tessera::cli
