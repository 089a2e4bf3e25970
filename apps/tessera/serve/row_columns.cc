#include "serve/row_columns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "config/json.h"
#include "csv_column.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/data.h"
#include "tessera/runtime.h"
#include "tessera/sdk/number_text.h"
#include "tessera/sdk/values.h"

namespace tessera::serve {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// True if a reader, or one that it wraps, takes words such as "NA" as missing numbers.
bool takes_missing_words(const std::string& reader) {
  for (std::string name = reader; name.find("missing_words") != std::string::npos;) {
    const ComponentName part = parse_component_name(name);
    const auto options = config::parse_json(part.options, {"the reader's options"});
    const auto found = options.find("missing_words");
    if (found != options.end() && found->is_boolean() && found->get<bool>()) return true;
    name = part.inner;
  }
  return false;
}

JsonTensor& add_tensor(InferJson& out, const std::string& name, const char* datatype, size_t count) {
  JsonTensor& t = out.inputs.emplace_back();
  t.name = name;
  t.datatype = datatype;
  t.shape = {static_cast<int64_t>(count)};
  t.has_data = true;
  t.first = out.numbers.size();
  t.count = count;
  return t;
}

}  // namespace

void RowColumn::begin(int64_t row) {
  if (seen_ && row_ == row) refuse("it is there twice");
  row_ = row;
  seen_ = true;
}

bool RowColumn::is_missing(const RowValue& value) const {
  if (std::holds_alternative<std::monostate>(value)) return true;
  const auto* text = std::get_if<std::string_view>(&value);
  if (text == nullptr) return false;
  if (form_.kind == Kind::kTexts) return text->empty();  // a text of blanks is a word, as in files
  const std::string_view word = sdk::trimmed(*text);
  return word.empty() || (form_.missing_words && sdk::is_missing_word(word));
}

void RowColumn::check_item(const RowValue& value) const {
  const auto* text = std::get_if<std::string_view>(&value);
  const size_t colon = text != nullptr && form_.weighted ? text->rfind(':') : std::string_view::npos;
  if (colon == std::string_view::npos || colon == 0 || !sdk::number_of(text->substr(colon + 1))) return;
  const std::string item = shown(*text), weight(text->substr(colon + 1));
  refuse('"', item, "\" in a list is a value without a weight: send {\"", shown(text->substr(0, colon)), "\": ", weight,
         "}, or {\"", item, "\": 1} if that is the value");
}

void RowColumn::take(const RowValue& value, bool in_list) {
  const auto* text = std::get_if<std::string_view>(&value);
  const size_t before = count();
  if (text != nullptr && !in_list && form_.separator != 0) {
    split(*text);
  } else if (form_.kind == Kind::kArray) {
    if (!in_list && form_.missing && is_missing(value)) return;  // end_row() gives the row its vector
    const double number = number_of(value);
    if (!in_list || std::isnan(number)) refuse("it is a list of ", form_.width, " numbers");
    numbers_.push_back(std::bit_cast<int64_t>(number));
  } else if (form_.kind == Kind::kDense) {
    const double number = number_of(value);
    if (std::isnan(number)) return;  // end_row() checks whether a value may be missing
    numbers_.push_back(std::bit_cast<int64_t>(number));
  } else if (is_missing(value)) {
    took_ = false;
    return;
  } else if (form_.kind == Kind::kTexts) {
    take_word(value);
  } else if (form_.kind == Kind::kIds) {
    numbers_.push_back(id_of(value));
  } else if (const double number = number_of(value); !std::isnan(number)) {
    numbers_.push_back(std::bit_cast<int64_t>(number));
  }
  took_ = count() > before;
  if (form_.weighted) weights_.resize(count(), 1.0f);
}

RowValue row_value(double number, std::string_view text) {
  constexpr double kExact = 0x1p53;
  const bool whole = text.find_first_of("eE") == std::string_view::npos;
  return whole && std::fabs(number) >= kExact ? RowValue(NumberText{text}) : RowValue(number);
}

void append_text(const RowValue& value, std::string& out) {
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string_view>)
          out += v;
        else if constexpr (std::is_same_v<T, NumberText>)
          out += v.text;
        else if constexpr (!std::is_same_v<T, std::monostate>)
          sdk::append_word(out, v);
      },
      value);
}

void RowColumn::take_word(const RowValue& value) {
  append_text(value, texts_);  // the model applies the rule for texts
  const bool number = std::holds_alternative<double>(value) || std::holds_alternative<NumberText>(value);
  if (number && form_.decimal != 0) std::replace(texts_.begin() + ends_.back(), texts_.end(), '.', form_.decimal);
  ends_.push_back(std::ssize(texts_));
}

double RowColumn::number_of(const RowValue& value) const {
  if (is_missing(value)) return form_.kind == Kind::kDense && form_.counts_missing ? 1 : kNone;
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    if (form_.columns != nullptr) return taken_of(*text);
    if (const std::optional<double> number = sdk::number_of(*text)) return *number;
    refuse(sdk::no_number(*text));
  }
  if (form_.takes_all) {
    std::string word;
    append_text(value, word);
    return taken_of(word);
  }
  return std::visit(
      [](const auto& v) -> double {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, NumberText>) return sdk::number_of(v.text).value_or(kNone);
        if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(v);
        return kNone;
      },
      value);
}

double RowColumn::taken_of(std::string_view text) const {
  try {
    return form_.columns->dense_number(form_.name, text);
  } catch (const Error& e) {
    refuse(e.what());
  }
}

int64_t RowColumn::id_of(const RowValue& value) const {
  if (const auto* id = std::get_if<int64_t>(&value)) return *id;
  const auto* text = std::get_if<std::string_view>(&value);
  const auto* number_text = std::get_if<NumberText>(&value);
  if (text != nullptr || number_text != nullptr) {
    tessera_readers::CsvColumn field({.name = form_.field, .type = TSR_READER_INT64});
    field.start_block(1);
    try {
      field.add(text != nullptr ? *text : number_text->text);
    } catch (const tessera_readers::WrongField& e) {
      refuse(e.what());
    }
    return *static_cast<const int64_t*>(field.values().values);
  }
  constexpr double kBeyond = 0x1p63;
  if (const auto* number = std::get_if<double>(&value);
      number != nullptr && *number == std::trunc(*number) && std::fabs(*number) < kBeyond)
    return static_cast<int64_t>(*number);
  refuse("its ids are rows of a table: whole numbers from 0 on");
}

// Splits a text as the reader of CSV files splits a field.
void RowColumn::split(std::string_view text) {
  tessera_readers::CsvColumn field(
      {.name = form_.field, .type = form_.type, .list = true, .weighted = form_.weighted, .separator = form_.separator},
      form_.missing_words);
  field.start_block(1);
  try {
    field.add(text);
  } catch (const tessera_readers::WrongField& e) {
    refuse(e.what(), form_.weighted ? "; or send {VALUE: WEIGHT, ...}" : "");
  }
  const tsr_reader_values got = field.values();
  for (int64_t i = 0; i < got.lists[1]; ++i) {
    if (form_.type == TSR_READER_TEXT)
      take_word(std::string_view(static_cast<const char*>(got.values) + got.texts[i],
                                 static_cast<size_t>(got.texts[i + 1] - got.texts[i])));
    else if (form_.type == TSR_READER_INT64)
      numbers_.push_back(static_cast<const int64_t*>(got.values)[i]);
    else if (form_.type == TSR_READER_FLOAT32)
      numbers_.push_back(std::bit_cast<int64_t>(double{static_cast<const float*>(got.values)[i]}));
    else
      numbers_.push_back(std::bit_cast<int64_t>(static_cast<const double*>(got.values)[i]));
    if (form_.weighted) weights_.push_back(got.weights[i]);
  }
}

void RowColumn::weigh(const RowValue& weight) {
  if (!form_.weighted) refuse("the model takes no weights there: send a list of values");
  const double number = number_of(weight);
  if (!std::isfinite(number) || std::fabs(number) > std::numeric_limits<float>::max())
    refuse("a weight is a finite number");
  if (took_) weights_.back() = static_cast<float>(number);
}

void RowColumn::end_row(int64_t row) {
  row_ = row;
  const size_t values = count() - before_;
  if (form_.kind == Kind::kArray && values == 0 && form_.missing) {
    numbers_.resize(before_ + form_.width, std::bit_cast<int64_t>(*form_.missing));
  } else if (form_.kind == Kind::kArray) {
    if (values != form_.width) refuse("the model takes ", form_.width, " numbers, and this row has ", values);
  } else if (form_.kind == Kind::kDense) {
    if (values == 0 && form_.needed)
      refuse("the value is missing, and the model has no other value for it (set missing in its [[column]])");
    any_ = any_ || values > 0;
    if (values == 0) numbers_.push_back(std::bit_cast<int64_t>(number_of(std::monostate())));
  } else {
    if (values == 0 && form_.counts_missing) ends_.push_back(std::ssize(texts_));
    lengths_.push_back(static_cast<int32_t>(count() - before_));
  }
  before_ = count();
  seen_ = false;
}

void RowColumn::give(InferJson& out) const {
  const bool dense = form_.kind == Kind::kDense || form_.kind == Kind::kArray;
  if (form_.kind == Kind::kDense && !any_ && !form_.needed) return;
  const std::string name = dense ? form_.name : form_.name + ".values";
  const char* const datatype = form_.kind == Kind::kTexts   ? "BYTES"
                               : form_.kind == Kind::kIds   ? "INT64"
                               : form_.kind == Kind::kArray ? "FP32"
                                                            : "FP64";
  JsonTensor& t = add_tensor(out, name, datatype, count());
  if (form_.kind == Kind::kTexts) {
    t.text = true;
    t.first = out.ends.size() - 1;
    const int64_t begin = std::ssize(out.texts);
    out.texts += texts_;
    for (size_t i = 1; i < ends_.size(); ++i) out.ends.push_back(begin + ends_[i]);
  } else {
    t.real = form_.kind != Kind::kIds;
    t.taken = form_.kind == Kind::kDense;
    out.numbers.insert(out.numbers.end(), numbers_.begin(), numbers_.end());
  }
  if (form_.kind == Kind::kArray)
    t.shape = {static_cast<int64_t>(numbers_.size() / form_.width), static_cast<int64_t>(form_.width)};
  if (dense) return;
  add_tensor(out, form_.name + ".lengths", "INT32", lengths_.size());
  out.numbers.insert(out.numbers.end(), lengths_.begin(), lengths_.end());
  if (!form_.weighted || std::all_of(weights_.begin(), weights_.end(), [](float w) { return w == 1.0f; })) return;
  add_tensor(out, form_.name + ".weights", "FP32", weights_.size()).real = true;
  for (const float weight : weights_) out.numbers.push_back(std::bit_cast<int64_t>(static_cast<double>(weight)));
}

std::vector<RowColumn> row_columns(const ModelDescription& model, const ColumnEncoding* columns) {
  using Kind = RowColumn::Kind;
  std::vector<RowColumn> out;
  const bool missing_words = columns != nullptr && takes_missing_words(columns->reader());
  const auto add = [&](RowColumn::Form form, const ColumnConfig* column) {
    form.field = column == nullptr || column->column.empty() ? form.name : column->column;
    form.missing_words = missing_words && form.type != TSR_READER_TEXT;
    out.emplace_back(std::move(form));
  };
  const std::vector<std::string> dense = columns != nullptr ? columns->dense() : std::vector<std::string>();
  for (const std::string& name : dense) {
    const ColumnConfig* const column = columns->column(name);
    const bool texts = ColumnEncoding::type_of(*column) == TSR_READER_TEXT, counts = column->take == "missing";
    add({.name = name,
         .kind = Kind::kDense,
         .type = ColumnEncoding::type_of(*column),
         .needed = !column->missing && !counts,
         .columns = texts ? columns : nullptr,
         .takes_all = texts && column->take != "value",
         .counts_missing = counts},
        column);
  }
  const auto vectors = columns != nullptr ? columns->vectors() : std::vector<ColumnEncoding::Vector>();
  for (const auto& [name, width] : vectors) {
    const ColumnConfig* const column = columns->column(name);
    RowColumn::Form form{.name = name, .kind = Kind::kArray, .width = static_cast<size_t>(width)};
    form.type = ColumnEncoding::type_of(*column);
    form.separator = column->separator.empty() ? ' ' : column->separator[0];
    if (column->missing) form.missing = column->missing->number;
    add(std::move(form), column);
  }
  if (dense.empty() && vectors.empty() && model.dense_inputs > 0)
    add({.name = "dense", .kind = Kind::kArray, .width = static_cast<size_t>(model.dense_inputs)}, nullptr);
  std::vector<std::string> wanted;
  for (const ModelFeature& feature : model.features) {
    const ColumnConfig* const column = columns != nullptr ? columns->column(feature.name) : nullptr;
    if (column != nullptr && !column->cross.empty()) continue;  // computed from other columns
    const int32_t type = column != nullptr ? ColumnEncoding::type_of(*column) : TSR_READER_INT64;
    add({.name = feature.name,
         .kind = type == TSR_READER_TEXT    ? Kind::kTexts
                 : type == TSR_READER_INT64 ? Kind::kIds
                                            : Kind::kNumbers,
         .type = type,
         .weighted = model.is_weighted && (column == nullptr || column->weighted),
         .separator = column != nullptr && !column->separator.empty() ? column->separator[0] : '\0',
         .counts_missing = column != nullptr && column->take == "missing",
         .decimal = column != nullptr && !column->decimal.empty() ? column->decimal[0] : '\0'},
        column);
  }
  return out;
}

}  // namespace tessera::serve
