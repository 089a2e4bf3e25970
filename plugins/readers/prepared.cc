#include "prepared.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "files.h"
#include "tessera/sdk/fields.h"

namespace tessera_readers {
namespace {

using json = nlohmann::ordered_json;
using tessera::sdk::cut;
using tessera::sdk::fail;
using tessera::sdk::finished;
using tessera::sdk::parse_number;

// Reads members of an object of meta.json. `at` is the object's place, for errors.
class Member {
 public:
  Member(const json& object, const char* key, std::string at)
      : value_(object.is_object() && object.contains(key) ? &object.at(key) : nullptr), at_(std::move(at) + key) {}
  explicit operator bool() const { return value_ != nullptr && !value_->is_null(); }
  const json& list() const { return checked(&json::is_array, "a list"); }
  std::string text() const { return checked(&json::is_string, "a text").get<std::string>(); }
  bool flag() const { return checked(&json::is_boolean, "true or false").get<bool>(); }
  int64_t integer() const { return checked(&json::is_number_integer, "an integer").get<int64_t>(); }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const json& item : list()) {
      if (!item.is_string()) fail(TSR_INVALID_ARGUMENT, at_, " is not a list of texts");
      out.push_back(item.get<std::string>());
    }
    return out;
  }

 private:
  const json& checked(bool (json::*is)() const noexcept, const char* expected) const {
    constexpr size_t kShown = 40;
    if (value_ == nullptr) fail(TSR_INVALID_ARGUMENT, at_, " is missing");
    if (!(value_->*is)())
      fail(TSR_INVALID_ARGUMENT, at_, " is ",
           value_->dump(-1, ' ', false, json::error_handler_t::replace).substr(0, kShown), "; ", expected,
           " is expected");
    return *value_;
  }
  const json* value_;
  std::string at_;
};

SampleForm form_of(const std::string& directory) {
  const std::string file = directory + "/meta.json", at = file + ": ";
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in)
    fail(TSR_NOT_FOUND, "cannot read ", file, ": ", std::strerror(errno),
         "; data.path must be a directory of prepared data");
  const json meta = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!meta.is_object()) fail(TSR_INVALID_ARGUMENT, file, " is no JSON object");
  SampleForm out;
  if (const Member name(meta, "name", at); name) out.name = name.text();
  const Member labels(meta, "labels", at), weights(meta, "sample_weights", at);
  out.binary = !labels;
  if (labels) out.labels = labels.texts();
  if (out.labels.empty()) fail(TSR_INVALID_ARGUMENT, at, "labels is empty: leave it out if there is one label");
  out.weighted = weights && weights.flag();
  out.dense = Member(meta, "dense", at).texts();
  const json& columns = Member(meta, "columns", at).list();
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string place = at + "columns[" + std::to_string(i) + "].";
    SampleForm::Table& table = out.tables.emplace_back();
    table.name = Member(columns[i], "name", place).text();
    table.rows = Member(columns[i], "rows", place).integer();
    if (const Member pooling(columns[i], "pooling", place); pooling) table.pooling = pooling.text();
    if (table.rows < 1) fail(TSR_INVALID_ARGUMENT, at, "column \"", table.name, "\" has no rows");
  }
  for (const auto& [part, rows] : {std::pair("train", &out.train_rows), std::pair("test", &out.test_rows)}) {
    if (!meta.contains(part)) continue;
    if (const Member said(meta[part], "rows", at + part + "."); said) *rows = said.integer();
  }
  return out;
}

// Returns `directory`/`name`, or the same with ".gz", whichever exists.
std::string text_file(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + name;
  std::error_code ignored;
  for (const std::string& file : {path, path + ".gz"}) {
    if (std::filesystem::exists(file, ignored) && !std::filesystem::is_directory(file, ignored))
      return files_of(file, {}).front();
  }
  fail(TSR_NOT_FOUND, "there is neither ", path, " nor ", path, ".gz");
}

template <class Value>
bool next_number(std::string_view& rest, Value& value) {
  return !finished(rest) && parse_number(cut(rest, ','), value);
}

}  // namespace

std::vector<tessera::sdk::ReaderColumn> SampleForm::columns() const {
  std::vector<tessera::sdk::ReaderColumn> out;
  const auto add = [&](std::string name, int32_t type, bool list = false) {
    const auto taken = [&](const tessera::sdk::ReaderColumn& c) { return c.name == name; };
    while (std::any_of(out.begin(), out.end(), taken)) name += '_';
    out.push_back({std::move(name), type, list});
  };
  for (const std::string& label : labels) add(label, TSR_READER_FLOAT64);
  if (weighted) add("weight", TSR_READER_FLOAT32);
  for (const std::string& value : dense) add(value, TSR_READER_FLOAT32);
  for (const Table& table : tables) add(table.name, TSR_READER_INT64, true);
  return out;
}

std::string SampleForm::described() const {
  json all = json::array();
  const std::vector<tessera::sdk::ReaderColumn> fields = columns();
  const auto add = [&](const std::string& name, const char* as) -> json& {
    const std::string& field = fields[all.size()].name;
    return all.emplace_back(json{{"name", name}, {"column", field}, {"as", as}, {"table", name}});
  };
  for (const std::string& label : labels) add(label, "label")["real"] = !binary;
  if (weighted) add("weight", "weight");
  for (const std::string& value : dense) add(value, "dense");
  for (const Table& table : tables) add(table.name, "ids").update({{"rows", table.rows}, {"pooling", table.pooling}});
  json out{{"name", name}, {"columns", all}, {"test_files", 1}};
  if (validated) out["validation_files"] = 1;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Prepared::Prepared(tessera::sdk::Options& options) {
  constexpr int64_t kMost = 1'000'000;
  const auto numbered = [&](const char* key, const std::string& name) {
    const int64_t count = options.integer(key, 0);
    if (count < 0 || count > kMost)
      fail(TSR_INVALID_ARGUMENT, key, " is ", count, ", but must be a number of columns, from 0 to ", kMost);
    std::vector<std::string> out;
    for (int64_t i = 1; i <= count; ++i) out.push_back(name + std::to_string(i));
    return out;
  };
  const std::vector<std::string> labels = numbered("labels", "label"), columns = numbered("columns", "column");
  form_.dense = numbered("dense", "dense");
  bare_ = !labels.empty();
  if (!bare_ && !(columns.empty() && form_.dense.empty()))
    fail(TSR_INVALID_ARGUMENT, "labels, dense and columns are for lines without meta.json, which have labels");
  form_.binary = !bare_ || options.flag("binary", false);
  if (bare_) form_.labels = labels;
  for (const std::string& column : columns) form_.tables.push_back({column});
}

const void* Prepared::extension(std::string_view id) const {
  const void* const paths = tessera::sdk::paths_extension<Prepared>(id);
  return paths != nullptr || !bare_ ? paths : tessera::sdk::pipe_extension<Prepared>(id);
}

const char* Prepared::opens(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/meta.json", ignored) ? "" : nullptr;
}

const char* Prepared::describe(const std::string& path) {
  if (bare_) return nullptr;
  said_ = form_of(path).described();
  return said_.c_str();
}

void Prepared::open(std::string_view path, int64_t block_bytes) {
  const std::string place(path);
  if (!bare_) form_ = form_of(place);
  start(form_.columns());
  if (bare_) {
    add_file(files_of(place, {}).front(), block_bytes);
    return;
  }
  for (const auto& [name, promised] :
       {std::pair("train.tsv", form_.train_rows), std::pair("test.tsv", form_.test_rows)}) {
    const std::string file = text_file(place, name);
    const int64_t rows = add_file(file, block_bytes);
    if (promised >= 0 && rows != promised)
      fail(TSR_DATA_LOSS, file, " has ", rows, " rows, but its meta.json says ", promised);
  }
}

void Prepared::follow(std::string_view path, std::string_view position) {
  start(form_.columns());
  SampleReader::follow(path, position);
}

void Prepared::add_line(std::string_view text, const LinePlace& place, std::vector<SampleColumn>& columns) const {
  constexpr size_t kShownLabel = 20, kShownLabels = 40;
  auto column = columns.begin();
  const std::string_view labels = cut(text, '\t');
  const std::string_view first = labels.substr(0, labels.find(','));
  if (form_.binary && first != "0" && first != "1")
    place.wrong("the label is \"", labels.substr(0, kShownLabel), "\", but must be 0 or 1");
  std::string_view rest = labels;
  for (size_t i = 0; i < form_.numbers(); ++i, ++column) {
    float value = 0;
    if (!next_number(rest, value))
      place.wrong("the labels", form_.weighted ? " and the weight" : "", " are \"", labels.substr(0, kShownLabels),
                  "\", but must be ", form_.numbers(),
                  form_.numbers() == 1 ? " number" : " numbers with commas between");
    if (i < form_.labels.size())
      column->add(static_cast<double>(value));
    else if (value < 0)
      place.wrong("the sample's weight ", value, " is below 0");
    else
      column->add(value);
  }
  if (!finished(rest)) place.wrong("there are more than ", form_.numbers(), " labels");

  const size_t fields = 2 + form_.tables.size();
  const auto next_field = [&] {
    if (finished(text)) place.wrong("a line has ", fields, " fields with tabs between; this one has fewer");
    return cut(text, '\t');
  };
  std::string_view dense = next_field();
  const size_t count = form_.dense.size();
  for (size_t i = 0; i < count; ++i, ++column) {
    float value = 0;
    if (!next_number(dense, value)) place.wrong("the dense values are not ", count, " numbers with commas between");
    column->add(value);
  }
  if (!finished(dense) && count > 0) place.wrong("there are more than ", count, " dense values");
  for (const SampleForm::Table& table : form_.tables) {
    for (std::string_view ids = next_field(); !ids.empty();) {
      int64_t id = 0;
      const bool good = parse_number(cut(ids, ','), id);
      if (!good || (!finished(ids) && ids.empty()))
        place.wrong("column \"", table.name, "\" is not a list of row numbers with commas between");
      column->add(id);
    }
    column++->end_list();
  }
  if (!finished(text)) place.wrong("there are more than ", fields, " fields");
}

}  // namespace tessera_readers
