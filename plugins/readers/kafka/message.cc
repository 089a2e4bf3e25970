#include "kafka/message.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "event_time.h"
#include "tessera/sdk/nearest.h"

namespace tessera_readers {
namespace {

using nlohmann::json;
using tessera::sdk::ReaderWant;

[[noreturn]] void wrong(const std::string& column, const std::string& what) {
  throw WrongField("column \"" + column + "\": " + what);
}

// A JSON value as a text field would have it.
std::string text_of(const json& value, const std::string& column) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  wrong(column, "is neither a number nor a text");
}

// A list as a text field would have it, in JSON.
std::string list_of(const json& values, const ReaderWant& want) {
  for (const json& value : values) {
    if (text_of(value, want.name).empty()) wrong(want.name, "has an empty value in its list");
  }
  return values.dump();
}

}  // namespace

void MessageRows::select(std::span<const ReaderWant> wants, const std::string& time) {
  columns_.clear();
  time_ = time;
  const auto require = [&](const std::string& name) {
    if (json() || std::find(fields_.begin(), fields_.end(), name) != fields_.end()) return;
    tessera::sdk::fail(TSR_NOT_FOUND, "kafka: \"columns\" has no \"", name, '"',
                       tessera::sdk::nearest_text(name, fields_));
  };
  for (const ReaderWant& want : wants) {
    require(want.name);
    columns_.emplace_back(want);
  }
  if (!time_.empty()) require(time_);
  start();
}

void MessageRows::start() {
  for (CsvColumn& column : columns_) column.start_block(0);
  times_.clear();
}

void MessageRows::split_json(std::string_view message) {
  const nlohmann::json root = nlohmann::json::parse(message, nullptr, false);
  if (!root.is_object()) throw WrongField("the message is not a JSON object");
  for (size_t k = 0; k < columns_.size(); ++k) {
    const ReaderWant& want = columns_[k].want();
    const auto found = root.find(want.name);
    if (found == root.end())
      texts_[k].clear();
    else if (want.list && (found->is_array() || (want.weighted && found->is_object())))
      texts_[k] = list_of(*found, want);
    else
      texts_[k] = text_of(*found, want.name);
  }
  if (time_.empty()) return;
  const auto found = root.find(time_);
  texts_.back() = found == root.end() ? "" : text_of(*found, time_);
}

void MessageRows::split_csv(std::string_view message) {
  while (message.ends_with('\n') || message.ends_with('\r')) message.remove_suffix(1);
  const char* at = message.data();
  const char* const end = at + message.size();
  size_t count = 0;
  for (;; ++at) {
    std::string_view field;
    if (!next_field(at, end, format_, scratch_, field))
      throw WrongField("field " + std::to_string(count + 1) + " has a quote that is not closed, or text after it");
    if (count < fields_.size()) {
      for (size_t k = 0; k < columns_.size(); ++k) {
        if (columns_[k].want().name == fields_[count]) texts_[k] = field;
      }
      if (!time_.empty() && time_ == fields_[count]) texts_.back() = field;
    }
    ++count;
    if (at == end) break;
  }
  if (count != fields_.size())
    throw WrongField("the message has " + std::to_string(count) + (count == 1 ? " field" : " fields") +
                     ", but \"columns\" names " + std::to_string(fields_.size()));
}

void MessageRows::take(size_t column, std::string_view field) {
  try {
    columns_[column].add(field);
  } catch (const WrongField& e) {
    wrong(columns_[column].want().name, e.what());
  }
}

void MessageRows::add(std::string_view message) {
  texts_.resize(columns_.size() + 1);
  json() ? split_json(message) : split_csv(message);
  for (size_t k = 0; k < columns_.size(); ++k) take(k, texts_[k]);
  if (!time_.empty()) times_.push_back(event_time(std::string_view(texts_.back())));
}

std::vector<tsr_reader_values> MessageRows::values() const {
  std::vector<tsr_reader_values> out;
  for (const CsvColumn& column : columns_) out.push_back(column.values());
  return out;
}

}  // namespace tessera_readers
