// Saves and loads the columns of a model's data in checkpoints and packed models, and compares them with a config.
#include <algorithm>
#include <string_view>

#include "data/columns.h"

namespace tessera::data {

using config::JsonObject;

namespace {
constexpr const char* kHash = "xxh64";
// Reads a number, or "mean" or "median" with the learned number beside it.
NumberOrWord missing_of(const JsonObject& column) {
  if (column.member("missing").is_number()) return {column.get<double>("missing"), ""};
  return {column.get<double>("missing_value"), column.get<std::string>("missing")};
}

constexpr int64_t kWords = 1;  // version of the rule in tessera/sdk/values.h

// Returns the unit in a type like "timestamp[ms, tz=UTC]" or "list<item: date32[day]>"; empty: it has no times.
std::string time_unit_of(std::string_view type) {
  for (const std::string_view time : {"timestamp[", "date32[", "date64[", "time32[", "time64["}) {
    const size_t at = type.find(time);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = type.substr(at + time.size());
    return std::string(rest.substr(0, rest.find_first_of(",]")));
  }
  return {};
}
}  // namespace

void Columns::learn_units(const std::vector<FileColumn>& files) {
  for (Column& c : columns_) {
    if (c.type == TSR_READER_TEXT || !c.config.cross.empty()) continue;
    for (const FileColumn& f : files) {
      if (f.name == c.field()) c.unit = time_unit_of(f.about);
    }
  }
}

void Columns::require_same_units(const std::vector<FileColumn>& files) const {
  for (const Column& c : columns_) {
    if (c.type == TSR_READER_TEXT || c.unit.empty()) continue;
    for (const FileColumn& f : files) {
      const std::string unit = f.name == c.field() ? time_unit_of(f.about) : "";
      if (unit.empty() || unit == c.unit) continue;
      fail(Code::kInvalidArgument, "column \"", c.field(), "\" holds times of the unit ", unit,
           ", but the model is trained on times of the unit ", c.unit,
           ", so the same times would be other numbers: convert the column to ", c.unit);
    }
  }
}

bool Columns::hashes() const {
  return std::any_of(columns_.begin(), columns_.end(), [](const Column& c) {
    return c.config.as == "ids" && (c.config.ids == "hash" || !c.config.cross.empty());
  });
}

bool Columns::looks_up_words() const {
  return std::any_of(columns_.begin(), columns_.end(), [](const Column& c) {
    return c.config.as == "ids" && c.config.cross.empty() && (c.config.ids == "hash" || c.config.ids == "vocabulary");
  });
}

Columns::Columns(const std::string& text, const std::string& source) : learned_(true) {
  const config::JsonSource from{source, Code::kDataLoss};
  const nlohmann::ordered_json root = config::parse_json(text, from);
  const JsonObject all(root, from);
  reader_ = all.get<std::string>("reader");
  std::string hash;
  all.read("hash", hash);
  xxh64_ = hash == kHash;
  if (!xxh64_ && !hash.empty())
    fail(Code::kDataLoss, source, " hashes texts by \"", hash,
         "\", which this version does not know: use the version of Tessera that wrote it, or a later one");
  int64_t words = 0;
  all.read("words", words);
  words_ = words == kWords;
  if (!words_ && words != 0)
    fail(Code::kDataLoss, source, " looks up words by rule ", words,
         ", which this version does not know: use the version ", "of Tessera that wrote it, or a later one");
  for (const JsonObject& j : all.objects("columns")) {
    Column& column = columns_.emplace_back();
    ColumnConfig& c = column.config;
    column.name = j.get<std::string>("name");
    column.table = j.get<std::string>("table");
    c.as = j.get<std::string>("as");
    j.read("column", c.column);
    j.read("take", c.take);
    j.read("decimal", c.decimal);
    j.read("strip", c.strip);
    j.read("missing_words", c.missing_words);
    j.read("time_format", c.time_format);
    j.read("since", c.since);
    j.read("positive", c.positive);
    if (j.has("missing")) c.missing = missing_of(j);
    j.read("width", c.width);
    j.read("transform", c.transform);
    j.read("mean", column.mean);
    j.read("deviation", column.deviation);
    j.read("unit", column.unit);
    j.read("threshold", c.threshold);
    j.read("real", c.real);
    j.read("ids", c.ids);
    j.read("min_count", c.min_count);
    j.read("rows", c.rows);
    j.read("bounds", c.bounds);
    j.read("cross", c.cross);
    j.read("separator", c.separator);
    j.read("weighted", c.weighted);
    j.read("longest", c.longest);
    j.read("pooling", c.pooling);
    column.type = type_of(c);
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
  if (!c.column.empty()) j["column"] = c.column;
  if (c.take != "value") j["take"] = c.take;
  if (!c.decimal.empty()) j["decimal"] = c.decimal;
  if (!c.strip.empty()) j["strip"] = c.strip;
  if (!c.missing_words.empty()) j["missing_words"] = c.missing_words;
  if (!c.time_format.empty()) j["time_format"] = c.time_format;
  if (!c.since.empty()) j["since"] = c.since;
  if (!c.positive.empty()) j["positive"] = c.positive;
  if (c.missing && !c.missing->word.empty())
    j["missing"] = c.missing->word;
  else if (c.missing)
    j["missing"] = c.missing->number;
  if (!c.transform.empty()) j["transform"] = c.transform;
  if (c.width > 0) j["width"] = c.width;
  if (c.as == "vector" && !c.separator.empty()) j["separator"] = c.separator;
  if (c.threshold) j["threshold"] = *c.threshold;
  if (c.real) j["real"] = true;
  if (c.as != "ids") return j;
  if (c.cross.empty())
    j["ids"] = c.ids;
  else
    j["cross"] = c.cross;
  if (c.min_count > 1) j["min_count"] = c.min_count;
  j["rows"] = c.rows;
  if (!c.bounds.empty()) j["bounds"] = c.bounds;
  if (!c.separator.empty()) j["separator"] = c.separator;
  if (c.weighted) j["weighted"] = true;
  if (c.longest > 0) j["longest"] = c.longest;
  j["pooling"] = c.pooling;
  return j;
}

void Columns::settle(const std::string& option) {
  if (option.empty()) return;
  const size_t at = std::min(reader_.find_first_of("?("), reader_.size());
  const bool more = at < reader_.size() && reader_[at] == '?';
  reader_.insert(more ? at + 1 : at, more ? option + "&" : "?" + option);
}

void Columns::require_same(const Columns& config) const {
  constexpr const char* kWhat = "a model keeps its columns: leave them as they were, or train a new model";
  for (const Column& c : config.columns_) {
    if (find(c.name) == nullptr)
      fail(Code::kInvalidArgument, "[[column]] \"", c.name, "\" is not a column of the model; ", kWhat);
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& mine = columns_[i];
    if (config.find(mine.name) == nullptr)
      fail(Code::kInvalidArgument, "the model was trained with a [[column]] \"", mine.name,
           "\", which the config lacks; ", kWhat);
    if (config.columns_[i].name != mine.name)
      fail(Code::kInvalidArgument, "[[column]] \"", config.columns_[i].name, "\" is in the place of \"", mine.name,
           "\" from when the model was trained; ", kWhat);
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
  if (xxh64_ && hashes()) out["hash"] = kHash;
  if (words_ && looks_up_words()) out["words"] = kWords;
  for (const Column& column : columns_) {
    nlohmann::ordered_json j = described(column);
    if (column.learns_missing()) j["missing_value"] = column.config.missing->number;
    if (column.standardised()) j["mean"] = column.mean, j["deviation"] = column.deviation;
    if (!column.unit.empty()) j["unit"] = column.unit;
    out["columns"].push_back(std::move(j));
  }
  nlohmann::ordered_json::object_t vocabularies;  // emplace_back() does not look for an equal name, and there is none
  for (const auto& [table, vocabulary] : vocabularies_) vocabularies.emplace_back(table, vocabulary.words());
  out["vocabularies"] = std::move(vocabularies);
  return out.dump();
}

}  // namespace tessera::data
