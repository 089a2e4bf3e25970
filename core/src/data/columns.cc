#include "data/columns.h"

#include <algorithm>
#include <cmath>

#include "data/column_check.h"
#include "data/hash.h"

namespace tessera::data {
namespace {

using config::JsonObject;

std::string_view text_of(const tsr_reader_values& v, int64_t i) {
  return {static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i])};
}

bool has(const tsr_reader_values& v, int64_t row) { return v.present == nullptr || v.present[row] != 0; }

bool has_transform(const ColumnConfig& c, const char* name) {
  return std::find(c.transform.begin(), c.transform.end(), name) != c.transform.end();
}

double logarithm_of(const ColumnConfig& c, double value) {
  return has_transform(c, "log1p") ? std::log1p(std::max(value, 0.0)) : value;
}

// What reads a column: the table of its name or of a feature of its name.
const TableConfig* table_of(const Config& config, const std::string& column) {
  for (const TableConfig& t : config.tables) {
    const std::vector<std::string>& f = t.features;
    if (f.empty() ? t.name == column : std::find(f.begin(), f.end(), column) != f.end()) return &t;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> Vocabulary::words() const {
  std::vector<std::string> out(rows_.size());
  for (const auto& [text, row] : rows_) out[static_cast<size_t>(row - 1)] = text;
  return out;
}

std::string BlockRows::where(int64_t row, const std::string& column) const {
  return cat(file, ", row ", first_row + row + 1, ", column \"", column, "\"");
}

int32_t Columns::type_of(const ColumnConfig& c) {
  if (c.as != "ids" || c.ids == "bucket") return TSR_READER_FLOAT32;
  return c.ids == "row" ? TSR_READER_INT64 : TSR_READER_TEXT;
}

bool Columns::Column::standardised() const { return has_transform(config, "standardise"); }

Columns::Columns(const Config& config) : reader_(config.data.reader) {
  if (config.columns.empty()) {
    fail(Code::kInvalidArgument, "data.reader = \"", reader_,
         "\" needs [[column]]s that say which column is the label, and which are dense or ids: `tessera data describe ",
         config.data.path, "` writes them");
  }
  for (const ColumnConfig& c : config.columns) {
    for (const std::string& name : c.name) {
      check_column(name, c);
      Column column{name, c, name};
      column.config.name.clear();
      if (c.as == "ids") {
        const TableConfig* table = table_of(config, name);
        if (table != nullptr) column.table = table->name;
        if (column.config.rows == 0 && table != nullptr) column.config.rows = table->rows;
        if (column.config.rows == 0 && (c.ids == "row" || c.ids == "hash")) {
          fail(Code::kInvalidArgument, "[[column]] \"", name, "\" says no rows, nor does a [[table]] that reads it: ",
               !c.cross.empty() ? "its combinations are hashed to rows"
               : c.ids == "row" ? "its ids are rows 0 to rows - 1"
                                : "its texts are hashed to rows");
        }
      }
      columns_.push_back(std::move(column));
    }
  }
  check();
}

void Columns::check() const {
  if (of("label").size() != 1)
    fail(Code::kInvalidArgument, of("label").size(), " columns are as = \"label\", but a model here has one label");
  const std::vector<const Column*> ids = of("ids");
  for (const Column* c : ids) {
    for (const std::string& part : c->config.cross) {
      const auto crossed = [&](const Column* o) { return o->name == part && o->config.cross.empty(); };
      if (std::any_of(ids.begin(), ids.end(), crossed)) continue;
      fail(Code::kInvalidArgument, "[[column]] \"", c->name, "\" is a cross of \"", part,
           "\", which is no [[column]] of ids of the files");
    }
  }
  if (ids.empty()) fail(Code::kInvalidArgument, "no [[column]] is as = \"ids\": there is nothing to look up");
}

Columns::Columns(const std::string& text, const std::string& source) : learned_(true) {
  const config::JsonSource from{source, Code::kDataLoss};
  const nlohmann::ordered_json root = config::parse_json(text, from);
  const JsonObject all(root, from);
  reader_ = all.get<std::string>("reader");
  for (const JsonObject& j : all.objects("columns")) {
    Column& column = columns_.emplace_back();
    ColumnConfig& c = column.config;
    column.name = j.get<std::string>("name");
    column.table = j.get<std::string>("table");
    c.as = j.get<std::string>("as");
    j.read("missing", c.missing);
    j.read("transform", c.transform);
    j.read("mean", column.mean);
    j.read("deviation", column.deviation);
    j.read("threshold", c.threshold);
    j.read("ids", c.ids);
    j.read("rows", c.rows);
    j.read("bounds", c.bounds);
    j.read("cross", c.cross);
    j.read("separator", c.separator);
    j.read("weighted", c.weighted);
    j.read("longest", c.longest);
    j.read("pooling", c.pooling);
    if (c.ids == "vocabulary") vocabularies_[column.table];
  }
  for (auto& [table, vocabulary] : vocabularies_) {
    for (const std::string& word : all.object("vocabularies").get<std::vector<std::string>>(table.c_str()))
      vocabulary.add(word);
  }
  check();
}

nlohmann::ordered_json Columns::described(const Column& column) {
  const ColumnConfig& c = column.config;
  nlohmann::ordered_json j = {{"name", column.name}, {"as", c.as}, {"table", column.table}};
  if (c.missing) j["missing"] = *c.missing;
  if (!c.transform.empty()) j["transform"] = c.transform;
  if (c.threshold) j["threshold"] = *c.threshold;
  if (c.as != "ids") return j;
  if (c.cross.empty())
    j["ids"] = c.ids;
  else
    j["cross"] = c.cross;
  j["rows"] = c.rows;
  if (!c.bounds.empty()) j["bounds"] = c.bounds;
  if (!c.separator.empty()) j["separator"] = c.separator;
  if (c.weighted) j["weighted"] = true;
  if (c.longest > 0) j["longest"] = c.longest;
  j["pooling"] = c.pooling;
  return j;
}

void Columns::require_same(const Columns& config) const {
  constexpr const char* kWhat = "what its columns are stays with a model: leave them as they were, or train anew";
  for (const Column& c : config.columns_) {
    if (find(c.name) == nullptr)
      fail(Code::kInvalidArgument, "[[column]] \"", c.name, "\" is none of the model's; ", kWhat);
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& mine = columns_[i];
    if (config.find(mine.name) == nullptr)
      fail(Code::kInvalidArgument, "the model was trained with a [[column]] \"", mine.name,
           "\", which the config has not; ", kWhat);
    if (config.columns_[i].name != mine.name)
      fail(Code::kInvalidArgument, "[[column]] \"", config.columns_[i].name, "\" stands where \"", mine.name,
           "\" stood when the model was trained; ", kWhat);
    const nlohmann::ordered_json was = described(mine), is = described(config.columns_[i]);
    for (const auto& both : {was, is}) {
      for (const auto& [key, unused] : both.items()) {
        const std::string before = was.contains(key) ? was[key].dump() : "unset";
        const std::string now = is.contains(key) ? is[key].dump() : "unset";
        if (before != now)
          fail(Code::kInvalidArgument, "[[column]] \"", mine.name, "\": ", key, " is ", now, ", but was ", before,
               " when the model was trained; ", kWhat);
      }
    }
  }
}

std::string Columns::json() const {
  nlohmann::ordered_json out = {{"reader", reader_}, {"columns", nlohmann::ordered_json::array()}};
  for (const Column& column : columns_) {
    nlohmann::ordered_json j = described(column);
    if (column.standardised()) j["mean"] = column.mean, j["deviation"] = column.deviation;
    out["columns"].push_back(std::move(j));
  }
  out["vocabularies"] = nlohmann::ordered_json::object();
  for (const auto& [table, vocabulary] : vocabularies_) out["vocabularies"][table] = vocabulary.words();
  return out.dump();
}

std::vector<const Columns::Column*> Columns::of(const std::string& as) const {
  std::vector<const Column*> out;
  for (const Column& c : columns_) {
    if (c.config.as == as) out.push_back(&c);
  }
  return out;
}

std::vector<std::string> Columns::labels() const {
  std::vector<std::string> out;
  for (const Column* c : of("label")) out.push_back(c->name);
  return out;
}

std::vector<std::string> Columns::dense() const {
  std::vector<std::string> out;
  for (const Column* c : of("dense")) out.push_back(c->name);
  return out;
}

std::vector<DataColumn> Columns::ids() const {
  std::vector<DataColumn> out;
  for (const Column* c : of("ids")) {
    int64_t rows = c->config.rows;
    if (c->config.ids == "vocabulary") {
      const auto learned = vocabularies_.find(c->table);
      rows = learned == vocabularies_.end() ? 1 : learned->second.rows();
    }
    if (c->config.ids == "bucket") rows = std::ssize(c->config.bounds) + 1;
    out.push_back({c->name, rows, c->config.pooling, c->config.weighted});
  }
  return out;
}

void Columns::meet(const std::vector<FileColumn>& files, bool needs_label) {
  const std::string& label = of("label").front()->name;
  labelled_ =
      needs_label || std::any_of(files.begin(), files.end(), [&](const FileColumn& f) { return f.name == label; });
  for (Column& c : columns_) {
    const auto listed = [&](const FileColumn& f) { return f.name == c.name && f.list; };
    c.list = !c.config.separator.empty() || std::any_of(files.begin(), files.end(), listed);
  }
  for (Column& c : columns_) {
    const auto lists = std::count_if(columns_.begin(), columns_.end(), [&](const Column& o) {
      const std::vector<std::string>& parts = c.config.cross;
      return o.list && std::find(parts.begin(), parts.end(), o.name) != parts.end();
    });
    if (lists > 1)
      fail(Code::kInvalidArgument, "[[column]] \"", c.name, "\" is a cross of ", lists, " lists: one at most");
    c.list = c.list || lists > 0;
  }
}

std::vector<WantedColumn> Columns::wanted() const {
  std::vector<WantedColumn> out;
  for (const char* as : {"label", "dense", "ids"}) {
    if (!labelled_ && as == std::string_view("label")) continue;
    for (const Column* c : of(as)) {
      const std::string& separator = c->config.separator;
      if (c->config.cross.empty())
        out.push_back(
            {c->name, type_of(c->config), c->list, c->config.weighted, separator.empty() ? ' ' : separator[0]});
    }
  }
  return out;
}

bool Columns::must_learn() const {
  return !learned_ && std::any_of(columns_.begin(), columns_.end(), [](const Column& c) {
    return c.standardised() || (c.config.as == "ids" && c.config.ids == "vocabulary");
  });
}

void Columns::learn(const BlockRows& at, std::span<const tsr_reader_values> values) {
  size_t next = labelled_ ? 1 : 0;
  for (Column& c : columns_) {
    if (c.config.as != "dense") continue;
    const tsr_reader_values& v = values[next++];
    for (int64_t row = at.first; c.standardised() && row < at.first + at.rows; ++row) {
      if (!has(v, row) && !c.config.missing) continue;  // append() refuses it
      const double value = has(v, row) ? static_cast<const float*>(v.values)[row] : *c.config.missing;
      const double x = logarithm_of(c.config, value);
      const double before = x - c.mean;  // Welford's sums
      c.mean += before / ++c.count;
      c.squares += before * (x - c.mean);
    }
  }
  for (const Column* c : of("ids")) {
    if (!c->config.cross.empty()) continue;
    const tsr_reader_values& v = values[next++];
    if (c->config.ids == "vocabulary") learn_words(*c, at, v);
  }
}

void Columns::learn_words(const Column& column, const BlockRows& at, const tsr_reader_values& v) {
  Vocabulary& vocabulary = vocabularies_[column.table];
  for (int64_t row = at.first; row < at.first + at.rows; ++row) {
    const int64_t begin = v.lists ? v.lists[row] : row, end = v.lists ? v.lists[row + 1] : row + (has(v, row) ? 1 : 0);
    for (int64_t i = begin; i < end; ++i) {
      if (!vocabulary.add(text_of(v, i))) continue;
      try {
        (void)nlohmann::ordered_json(text_of(v, i)).dump();
      } catch (const nlohmann::json::exception&) {
        fail(Code::kInvalidArgument, at.where(row, column.name),
             ": a word of a vocabulary must be UTF-8; ids = \"hash\" takes any bytes");
      }
    }
  }
}

void Columns::finish_learning() {
  for (Column& c : columns_) {
    if (c.config.as == "ids" && c.config.ids == "vocabulary") vocabularies_[c.table];
    if (!c.standardised() || c.count == 0) continue;
    if (c.squares > 0) c.deviation = std::sqrt(c.squares / c.count);
  }
  learned_ = true;
}

bool Columns::label_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row) const {
  if (!has(v, row)) fail(Code::kInvalidArgument, at.where(row, column.name), ": the label is missing");
  const float value = static_cast<const float*>(v.values)[row];
  if (column.config.threshold) return static_cast<double>(value) >= *column.config.threshold;
  if (value != 0 && value != 1)
    fail(Code::kInvalidArgument, at.where(row, column.name), ": the label is ", value,
         ", but must be 0 or 1; threshold = X makes it 1 from X on");
  return value == 1;
}

float Columns::dense_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row) const {
  if (!has(v, row) && !column.config.missing)
    fail(Code::kInvalidArgument, at.where(row, column.name),
         ": the value is missing; missing = X in its [[column]] takes X instead");
  return dense_of(column, has(v, row) ? static_cast<const float*>(v.values)[row] : *column.config.missing);
}

float Columns::dense_of(const Column& column, double value) {
  return static_cast<float>((logarithm_of(column.config, value) - column.mean) / column.deviation);
}

void Columns::encode(const Column& column, const BlockRows& at, const tsr_reader_values& v, Ids& out) const {
  const ColumnConfig& c = column.config;
  out.begins.assign(1, 0);
  out.begins.reserve(static_cast<size_t>(at.rows) + 1);
  const auto collect = [&](const auto& add) {
    for (int64_t row = at.first; row < at.first + at.rows; ++row) {
      int64_t begin = v.lists ? v.lists[row] : row;
      const int64_t end = v.lists ? v.lists[row + 1] : row + (has(v, row) ? 1 : 0);
      if (c.longest > 0) begin = std::max(begin, end - c.longest);
      add(begin, end);
      if (v.weights != nullptr) out.weights.insert(out.weights.end(), v.weights + begin, v.weights + end);
      out.begins.push_back(std::ssize(out.values));
    }
  };
  const auto collect_each = [&](const auto& id_of) {
    collect([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out.values.push_back(id_of(i));
    });
  };
  if (c.ids == "row") {
    const auto* numbers = static_cast<const int64_t*>(v.values);
    collect([&](int64_t begin, int64_t end) { out.values.insert(out.values.end(), numbers + begin, numbers + end); });
  } else if (c.ids == "hash") {
    const std::string prefix = column.table + "=";
    collect_each([&](int64_t i) { return row_of(prefix, text_of(v, i), c.rows); });
  } else if (c.ids == "vocabulary") {
    const Vocabulary& vocabulary = vocabularies_.at(column.table);
    collect_each([&](int64_t i) { return vocabulary.row(text_of(v, i)); });
  } else {
    collect_each([&, numbers = static_cast<const float*>(v.values)](int64_t i) {
      const auto below = [](float x, double bound) { return x < static_cast<float>(bound); };
      return std::upper_bound(c.bounds.begin(), c.bounds.end(), numbers[i], below) - c.bounds.begin();
    });
  }
}

// Every combination of one id of each part, the last part's changing fastest.
void Columns::cross(const Column& column, std::span<const Ids* const> parts, Ids& out) {
  const std::string prefix = column.table + "=";
  out.begins.assign(1, 0);
  std::vector<std::string> texts, longer;
  for (size_t row = 0; row + 1 < parts.front()->begins.size(); ++row) {
    texts.assign(1, "");
    for (const Ids* part : parts) {
      longer.clear();
      for (const std::string& text : texts) {
        for (int64_t i = part->begins[row]; i < part->begins[row + 1]; ++i)
          longer.push_back(cat(text, part->values[static_cast<size_t>(i)], ' '));
      }
      texts.swap(longer);
    }
    const int64_t longest = column.config.longest;
    const size_t all = texts.size(), taken = longest > 0 ? std::min(all, static_cast<size_t>(longest)) : all;
    for (size_t i = all - taken; i < all; ++i) out.values.push_back(row_of(prefix, texts[i], column.config.rows));
    out.begins.push_back(std::ssize(out.values));
  }
}

void Columns::append(const BlockRows& at, std::span<const tsr_reader_values> values, Examples& examples) const {
  const Column& label = *of("label").front();
  const std::vector<const Column*> dense = of("dense"), ids = of("ids");
  const size_t first_dense = labelled_ ? 1 : 0;
  std::vector<Ids> encoded(ids.size());
  size_t next = first_dense + dense.size();
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k]->config.cross.empty()) encode(*ids[k], at, values[next++], encoded[k]);
  }
  for (size_t k = 0; k < ids.size(); ++k) {
    std::vector<const Ids*> parts;
    for (const std::string& name : ids[k]->config.cross) {
      const auto part = std::find_if(ids.begin(), ids.end(), [&](const Column* c) { return c->name == name; });
      parts.push_back(&encoded[static_cast<size_t>(part - ids.begin())]);
    }
    if (!parts.empty()) cross(*ids[k], parts, encoded[k]);
  }
  for (int64_t i = 0; i < at.rows; ++i) {
    const int64_t row = at.first + i;
    examples.begin_sample(labelled_ && label_of(label, at, values[0], row) ? 1.0f : 0.0f);
    for (size_t k = 0; k < dense.size(); ++k) examples.add_dense(dense_of(*dense[k], at, values[first_dense + k], row));
    for (size_t k = 0; k < ids.size(); ++k) {
      const Ids& e = encoded[k];
      const auto first = static_cast<size_t>(e.begins[static_cast<size_t>(i)]);
      const auto n = static_cast<size_t>(e.begins[static_cast<size_t>(i) + 1]) - first;
      const int64_t* bag = e.values.data() + first;
      if (!examples.add_ids({bag, n}, e.weights.empty() ? nullptr : e.weights.data() + first) &&
          examples.bad_id().empty()) {
        const int64_t rows = examples.columns()[k].rows;
        const int64_t bad = *std::find_if(bag, bag + n, [&](int64_t id) { return id < 0 || id >= rows; });
        examples.note_bad_id(
            cat(at.where(row, ids[k]->name), " names row ", bad, ", but its table has ", rows, " rows"));
      }
      examples.end_bag();
    }
    examples.end_sample();
  }
}

const Columns::Column& Columns::named(const std::string& name) const {
  const Column* column = find(name);
  TESSERA_CHECK(column != nullptr);
  return *column;
}

const Columns::Column* Columns::find(const std::string& name) const {
  const auto found = std::find_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; });
  return found == columns_.end() ? nullptr : &*found;
}

const ColumnConfig* Columns::column(const std::string& name) const {
  const Column* column = find(name);
  return column == nullptr ? nullptr : &column->config;
}

void Columns::encode(const std::string& name, int64_t rows, const tsr_reader_values& values, Ids& out) const {
  encode(named(name), {"", 0, 0, rows}, values, out);
}

void Columns::cross(const std::string& name, std::span<const Ids* const> parts, Ids& out) const {
  cross(named(name), parts, out);
}

float Columns::dense_value(const std::string& name, float value) const { return dense_of(named(name), value); }

int64_t Columns::memory_of(int64_t samples, int64_t text_bytes) const {
  const std::vector<const Column*> ids = of("ids");
  const bool weighted = std::any_of(ids.begin(), ids.end(), [](const Column* c) { return c->config.weighted; });
  const int64_t id = weighted ? 8 : 4;
  int64_t sample = 16 + 4 * std::ssize(dense()), crosses = 0;  // label, order, start
  bool files_have_lists = false;
  for (const Column* c : ids) {
    sample += id + 4;  // and the length of its bag
    files_have_lists = files_have_lists || (c->list && c->config.cross.empty());
    crosses += c->list && !c->config.cross.empty() ? 1 : 0;
  }
  const int64_t lists = crosses + (files_have_lists ? 1 : 0);  // those of the files share its text
  return samples * sample + lists * text_bytes * id / 2;       // an id has 2 bytes of text at least
}

}  // namespace tessera::data
