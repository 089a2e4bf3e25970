#include "data/columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/column_check.h"
#include "data/column_numbers.h"
#include "data/words.h"
#include "data/xxh64.h"
#include "tessera/sdk/fields.h"

namespace tessera::data {
namespace {

std::string_view text_of(const tsr_reader_values& v, int64_t i) {
  return {static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i])};
}

// True if the file's ids are used unchanged.
bool as_they_are(const ColumnConfig& c, const tsr_reader_values& v) {
  return c.ids == "row" && c.take == "value" && c.longest == 0 && (v.lists != nullptr || v.present == nullptr);
}

int64_t xxh64_row(std::string_view text, int64_t rows) {
  return static_cast<int64_t>(xxh64(text) % static_cast<uint64_t>(rows));
}

int64_t bucket_of(const ColumnConfig& c, double number) {
  const auto below = [](double x, double bound) { return !reaches(x, bound); };
  return std::upper_bound(c.bounds.begin(), c.bounds.end(), number, below) - c.bounds.begin();
}

template <class Column>
bool is_crossed(const std::vector<const Column*>& ids, const std::string& name) {
  return std::any_of(ids.begin(), ids.end(), [&](const Column* c) {
    return std::find(c->config.cross.begin(), c->config.cross.end(), name) != c->config.cross.end();
  });
}

// The first sample with an id that its column's table does not have.
struct Unknown {
  int64_t sample, id;
  size_t column;
};
Unknown first_unknown(std::span<const Examples::Bags> bags, const std::vector<DataColumn>& columns, int64_t samples) {
  Unknown out{samples, 0, 0};
  for (size_t k = 0; k < bags.size(); ++k) {
    const Examples::Bags& b = bags[k];
    const auto rows = static_cast<uint64_t>(columns[k].rows);
    int64_t at = b.begins[0];
    while (at < b.begins[samples] && static_cast<uint64_t>(b.ids[at]) < rows) ++at;
    if (at == b.begins[samples]) continue;
    const int64_t sample = std::upper_bound(b.begins, b.begins + samples, at) - b.begins - 1;
    if (sample < out.sample) out = {sample, b.ids[at], k};
  }
  return out;
}

// Finds the table that uses a column: by the table's name, or by the name of one of its features.
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

void Vocabulary::drop_rare(int64_t min_count) {
  int64_t kept = 0;
  std::vector<int64_t> row_of;  // by old row; 0: dropped
  for (const int64_t count : counts_) row_of.push_back(count >= min_count ? ++kept : 0);
  for (auto& [text, row] : rows_) row = row_of[static_cast<size_t>(row - 1)];
  std::erase_if(rows_, [](const auto& entry) { return entry.second == 0; });
  std::erase_if(counts_, [&](int64_t count) { return count < min_count; });
}

std::string BlockRows::where(int64_t row, const std::string& column) const {
  return str_cat(file, file.empty() ? "row " : ", row ", first_row + row + 1, ", column \"", column, "\"");
}

int32_t Columns::type_of(const ColumnConfig& c) {
  if (!c.positive.empty() || numbers_in_text(c)) return TSR_READER_TEXT;
  if (c.as == "ids" && c.ids != "bucket") return c.ids == "row" ? TSR_READER_INT64 : TSR_READER_TEXT;
  // converted to float32, and nothing else
  const bool rounded = c.transform.empty() && !(c.missing && !c.missing->word.empty());
  return rounded && (c.as == "dense" || c.as == "vector" || c.as == "weight") ? TSR_READER_FLOAT32 : TSR_READER_FLOAT64;
}

Columns::Columns(const Config& config)
    : reader_(config.data.later_reader.empty() ? config.data.reader : config.data.later_reader) {
  if (config.columns.empty()) {
    fail(Code::kInvalidArgument, "data.reader = \"", reader_,
         "\" needs [[column]]s that say which column is the label, and which are dense or ids: `tessera data describe ",
         config.data.path, "` writes them");
  }
  for (const ColumnConfig& c : config.columns) {
    for (const std::string& name : c.name) {
      check_column(name, c);
      Column column{.name = name, .config = c, .table = name, .type = type_of(c)};
      column.config.name.clear();
      if (c.as == "ids") {
        const TableConfig* table = table_of(config, name);
        if (table != nullptr) column.table = table->name;
        if (column.config.rows == 0 && table != nullptr) column.config.rows = table->any_id ? INT64_MAX : table->rows;
        if (column.config.rows == 0 && c.ids == "row") column.config.rows = rows_taken(c);
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
  if (of("label").empty())
    fail(Code::kInvalidArgument, "no column is the label: set as = \"label\" in the [[column]] to predict");
  if (of("weight").size() > 1)
    fail(Code::kInvalidArgument, "[[column]]s \"", of("weight")[0]->name, "\" and \"", of("weight")[1]->name,
         "\" are as = \"weight\", but a sample has one weight");
  const std::vector<const Column*> ids = of("ids");
  for (const Column* c : ids) {
    for (const std::string& part : c->config.cross) {
      const auto crossed = [&](const Column* o) { return o->name == part && o->config.cross.empty(); };
      if (std::any_of(ids.begin(), ids.end(), crossed)) continue;
      fail(Code::kInvalidArgument, "[[column]] \"", c->name, "\" is a cross of \"", part,
           "\", which is not a [[column]] of ids of the files");
    }
  }
  std::unordered_map<std::string_view, const Column*> sharers;  // the first column of each table
  for (const Column* c : ids) {
    if (c->config.ids != "vocabulary") continue;
    const Column* const first = sharers.emplace(c->table, c).first->second;
    if (first->config.min_count != c->config.min_count)
      fail(Code::kInvalidArgument, "[[column]]s \"", first->name, "\" and \"", c->name,
           "\" share the vocabulary of table \"", c->table, "\", but min_count is ", first->config.min_count, " and ",
           c->config.min_count, ": give both the same");
  }
  if (ids.empty()) fail(Code::kInvalidArgument, "no [[column]] is as = \"ids\": there is nothing to look up");
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

LabelForm Columns::label_form() const {
  const std::vector<const Column*> labels = of("label");
  return {labels.size(), !of("weight").empty(),
          std::none_of(labels.begin(), labels.end(), [](const Column* c) { return c->config.real; })};
}

std::vector<std::string> Columns::dense() const {
  std::vector<std::string> out;
  for (const Column* c : of("dense")) out.push_back(c->name);
  return out;
}

std::vector<Columns::Vector> Columns::vectors() const {
  std::vector<Vector> out;
  for (const Column* c : of("vector")) out.push_back({c->name, c->config.width});
  return out;
}

int64_t Columns::dense_width() const {
  int64_t width = std::ssize(of("dense"));
  for (const Column* c : of("vector")) width += c->config.width;
  return width;
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
    const bool all = c->config.ids != "row" || !c->config.cross.empty();
    out.push_back({c->name, rows, c->config.pooling, c->config.weighted, all});
  }
  return out;
}

void Columns::meet(const std::vector<FileColumn>& files, bool needs_label) {
  std::unordered_map<std::string_view, const FileColumn*> by_name;
  for (const FileColumn& f : files) by_name.emplace(f.name, &f);
  const auto of_files = [&](const Column& c) -> const FileColumn* {
    const auto found = by_name.find(c.field());
    return found == by_name.end() ? nullptr : found->second;
  };
  const auto is_there = [&](const Column* c) { return of_files(*c) != nullptr; };
  const std::vector<const Column*> labels = of("label"), weights = of("weight");
  labelled_ = needs_label || (std::all_of(labels.begin(), labels.end(), is_there) &&
                              std::all_of(weights.begin(), weights.end(), is_there));
  for (Column& c : columns_) {
    const FileColumn* const file = of_files(c);
    if (file != nullptr && c.config.cross.empty()) require_readable(c, *file);
    c.list = c.config.as == "vector" || !c.config.separator.empty() ||
             (file != nullptr && file->list && c.config.as == "ids");
    const bool one = needs_label && file != nullptr && !c.list && c.config.as == "ids" && c.config.cross.empty();
    for (const auto& [key, given] : {std::pair("longest", c.config.longest > 0), {"weighted", c.config.weighted}}) {
      if (one && given)
        fail(Code::kInvalidArgument, "[[column]] \"", c.name, "\": the files have one value in each row, so its \"",
             key, "\" has no effect: set separator if its fields are lists, or leave it out");
    }
    // Read text labels as text, so that the error for one that is no number can say what a label may be.
    const bool typed = file != nullptr && file->type != TSR_READER_TEXT;
    // `decimal`, `strip` and `missing_words` are about texts; what files hold as numbers is read as it is.
    const bool written = c.config.take == "value" && numbers_in_text(c.config);
    if (written) c.type = typed ? TSR_READER_FLOAT64 : TSR_READER_TEXT;
    if (c.config.as == "label" && !typed) c.type = TSR_READER_TEXT;
  }
  for (Column& c : columns_) {
    if (c.config.cross.empty()) continue;
    const auto lists = std::count_if(columns_.begin(), columns_.end(), [&](const Column& o) {
      const std::vector<std::string>& parts = c.config.cross;
      return o.list && std::find(parts.begin(), parts.end(), o.name) != parts.end();
    });
    if (lists > 1)
      fail(Code::kInvalidArgument, "[[column]] \"", c.name, "\" is a cross of ", lists, " lists: one at most");
    c.list = c.list || lists > 0;
  }
  if (learned_)
    require_same_units(files);
  else
    learn_units(files);
  place_columns();
}

void Columns::require_readable(const Column& c, const FileColumn& file) const {
  const bool number = file.type == TSR_READER_FLOAT32 || file.type == TSR_READER_FLOAT64;
  const bool word = c.config.as == "ids" && (c.config.ids == "vocabulary" || c.config.ids == "hash");
  if (!words_ && word && number)
    fail(Code::kInvalidArgument, "column \"", c.field(),
         "\" of the files holds floats, whose words have changed since the model was trained: train a new model, or "
         "use the version of Tessera that trained it");
  if (file.list && c.config.as != "vector" && (c.config.as != "ids" || c.config.take == "missing"))
    fail(Code::kInvalidArgument, "column \"", c.field(), "\" of the files holds lists, so [[column]] \"", c.name,
         "\" must be as = \"ids\", or as = \"vector\" if each has as many numbers");
  if (file.weighted && !c.config.weighted)
    fail(Code::kInvalidArgument, "column \"", c.field(), "\" of the files holds lists with weights, ",
         c.config.as == "ids" ? str_cat("but [[column]] \"", c.name, "\" has no weighted = true: set it")
                              : str_cat("which [[column]] \"", c.name, "\" cannot use as a ", c.config.as),
         ", or leave the weights out of the data");
}

// The columns that are read: labels and weight if there are any, dense columns, and id columns except crosses.
void Columns::place_columns() {
  wanted_.clear();
  for (const char* as : {"label", "weight", "dense", "vector", "ids"}) {
    if (!labelled_ && (as == std::string_view("label") || as == std::string_view("weight"))) continue;
    for (Column& c : columns_) {
      if (c.config.as != as || !c.config.cross.empty()) continue;
      const std::string& separator = c.config.separator;
      const WantedColumn want{c.field(), c.type, c.list, c.config.weighted, separator.empty() ? ' ' : separator[0]};
      const auto same = std::find(wanted_.begin(), wanted_.end(), want);
      c.place = static_cast<size_t>(same - wanted_.begin());
      if (same == wanted_.end()) wanted_.push_back(want);
    }
  }
}

void Columns::encode(const Column& column, const BlockRows& at, const tsr_reader_values& v, Ids& out) const {
  const ColumnConfig& c = column.config;
  out.begins.assign(1, 0);
  out.begins.reserve(static_cast<size_t>(at.rows) + 1);
  out.values.reserve(static_cast<size_t>(v.lists ? v.lists[at.first + at.rows] - v.lists[at.first] : at.rows));
  const auto collect = [&](const auto& add) {
    for (int64_t row = at.first; row < at.first + at.rows; ++row) {
      int64_t begin = v.lists ? v.lists[row] : row;
      const int64_t end = v.lists ? v.lists[row + 1] : row + (has(v, row) ? 1 : 0);
      if (c.longest > 0) begin = std::max(begin, end - c.longest);
      add(begin, end);
      out.begins.push_back(std::ssize(out.values));
    }
  };
  Words words(words_);
  const auto collect_each = [&](const auto& id_of) {
    collect([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out.values.push_back(id_of(i));
        if (v.weights != nullptr) out.weights.push_back(v.weights[i]);
      }
    });
  };
  if (numbers_in_text(c) || c.ids == "bucket") {
    encode_numbers(column, at, v, out);
  } else if (c.ids == "row") {
    const auto* numbers = static_cast<const int64_t*>(v.values);
    collect([&](int64_t begin, int64_t end) {
      out.values.insert(out.values.end(), numbers + begin, numbers + end);
      if (v.weights != nullptr) out.weights.insert(out.weights.end(), v.weights + begin, v.weights + end);
    });
  } else if (c.ids == "hash" && xxh64_) {
    collect_each([&](int64_t i) { return xxh64_row(words.of(text_of(v, i)), c.rows); });
  } else if (c.ids == "hash") {
    const std::string prefix = column.table + "=";
    collect_each([&](int64_t i) { return sdk::row_of(prefix, words.of(text_of(v, i)), c.rows); });
  } else {
    const Vocabulary& vocabulary = vocabularies_.at(column.table);
    collect_each([&](int64_t i) { return vocabulary.row(words.of(text_of(v, i))); });
  }
}

// Encodes numbers: buckets, and what `take` gives. A list item without a number is left out.
void Columns::encode_numbers(const Column& column, const BlockRows& at, const tsr_reader_values& v, Ids& out) const {
  const ColumnConfig& c = column.config;
  const ColumnNumbers numbers(c, column.type, v);
  for (int64_t row = at.first; row < at.first + at.rows; ++row) {
    int64_t begin = v.lists ? v.lists[row] : row;
    const int64_t end = v.lists ? v.lists[row + 1] : row + 1;
    if (c.longest > 0) begin = std::max(begin, end - c.longest);
    for (int64_t i = begin; i < end; ++i) {
      const double number = number_at(numbers, i, at, row, column.field());
      if (std::isnan(number)) continue;
      out.values.push_back(c.ids == "bucket" ? bucket_of(c, number) : static_cast<int64_t>(std::floor(number)));
      if (v.weights != nullptr) out.weights.push_back(v.weights[i]);
    }
    out.begins.push_back(std::ssize(out.values));
  }
}

// Combines one id of each part in every way. The last part changes fastest.
void Columns::cross(const Column& column, std::span<const Ids* const> parts, Ids& out) const {
  const std::string prefix = column.table + "=";
  out.begins.assign(1, 0);
  std::vector<std::string> texts, longer;
  for (size_t row = 0; row + 1 < parts.front()->begins.size(); ++row) {
    texts.assign(1, "");
    for (const Ids* part : parts) {
      longer.clear();
      for (const std::string& text : texts) {
        for (int64_t i = part->begins[row]; i < part->begins[row + 1]; ++i)
          longer.push_back(str_cat(text, part->values[static_cast<size_t>(i)], ' '));
      }
      texts.swap(longer);
    }
    const int64_t longest = column.config.longest;
    const size_t all = texts.size(), taken = longest > 0 ? std::min(all, static_cast<size_t>(longest)) : all;
    const int64_t rows = column.config.rows;
    for (size_t i = all - taken; i < all; ++i)
      out.values.push_back(xxh64_ ? xxh64_row(texts[i], rows) : sdk::row_of(prefix, texts[i], rows));
    out.begins.push_back(std::ssize(out.values));
  }
}

void Columns::append(const BlockRows& at, std::span<const tsr_reader_values> values, Examples& examples) const {
  const std::vector<const Column*> ids = of("ids");
  std::vector<Ids> encoded(ids.size());
  std::vector<Examples::Bags> bags(ids.size());
  for (size_t k = 0; k < ids.size(); ++k) {
    if (!ids[k]->config.cross.empty()) continue;
    const tsr_reader_values& v = values[ids[k]->place];
    if (as_they_are(ids[k]->config, v) && !is_crossed(ids, ids[k]->name)) {
      std::vector<int64_t>& begins = encoded[k].begins;
      if (v.lists == nullptr) begins.resize(static_cast<size_t>(at.rows) + 1);
      std::iota(begins.begin(), begins.end(), at.first);
      bags[k] = {static_cast<const int64_t*>(v.values), v.lists ? v.lists + at.first : begins.data(), v.weights};
    } else {
      encode(*ids[k], at, v, encoded[k]);
    }
  }
  for (size_t k = 0; k < ids.size(); ++k) {
    std::vector<const Ids*> parts;
    for (const std::string& name : ids[k]->config.cross) {
      const auto part = std::find_if(ids.begin(), ids.end(), [&](const Column* c) { return c->name == name; });
      parts.push_back(&encoded[static_cast<size_t>(part - ids.begin())]);
    }
    if (!parts.empty()) cross(*ids[k], parts, encoded[k]);
    const Ids& e = encoded[k];
    if (bags[k].begins == nullptr)
      bags[k] = {e.values.data(), e.begins.data(), e.weights.empty() ? nullptr : e.weights.data()};
  }
  const bool known = examples.append(labels_of(at, values), dense_of(at, values), bags);
  if (known || !examples.bad_id().empty()) return;
  const Unknown bad = first_unknown(bags, examples.columns(), at.rows);
  examples.note_bad_id(str_cat(at.where(at.first + bad.sample, ids[bad.column]->field()),
                               bad_id_text(bad.id, examples.columns()[bad.column].rows)));
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

std::vector<std::string> Columns::names() const {
  std::vector<std::string> out;
  for (const Column& c : columns_) out.push_back(c.name);
  return out;
}

std::optional<std::vector<std::string>> Columns::words(const std::string& table) const {
  const bool others = std::any_of(columns_.begin(), columns_.end(), [&](const Column& c) {
    return c.config.as == "ids" && c.table == table && (c.config.ids != "vocabulary" || !c.config.cross.empty());
  });
  const auto found = vocabularies_.find(table);
  if (others || found == vocabularies_.end()) return std::nullopt;
  return found->second.words();
}

bool Columns::reads(const std::string& field) const {
  return std::any_of(columns_.begin(), columns_.end(),
                     [&](const Column& c) { return c.config.cross.empty() && c.field() == field; });
}

void Columns::encode(const std::string& name, int64_t rows, const tsr_reader_values& values, Ids& out) const {
  encode(named(name), {"", 0, 0, rows}, values, out);
}

void Columns::cross(const std::string& name, std::span<const Ids* const> parts, Ids& out) const {
  cross(named(name), parts, out);
}

int64_t Columns::memory_of(int64_t samples, int64_t text_bytes) const {
  const std::vector<const Column*> ids = of("ids");
  const bool weighted = std::any_of(ids.begin(), ids.end(), [](const Column* c) { return c->config.weighted; });
  const int64_t id = weighted ? 8 : 4;
  // Labels, weight, order and start.
  int64_t sample = 12 + 4 * static_cast<int64_t>(label_form().values()) + 4 * dense_width(), crosses = 0;
  bool files_have_lists = false;
  for (const Column* c : ids) {
    sample += id + 4;  // one more for the length of its bag
    files_have_lists = files_have_lists || (c->list && c->config.cross.empty());
    crosses += c->list && !c->config.cross.empty() ? 1 : 0;
  }
  const int64_t lists = crosses + (files_have_lists ? 1 : 0);  // the files' lists share the text bytes
  return samples * sample + lists * text_bytes * id / 2;       // an id takes at least 2 bytes of text
}

}  // namespace tessera::data
