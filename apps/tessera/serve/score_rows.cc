#include "serve/score_rows.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "config/json.h"
#include "serve/histories.h"
#include "serve/infer_inputs.h"
#include "serve/infer_tensors.h"
#include "serve/names.h"
#include "serve/row_columns.h"
#include "serve/row_error.h"
#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera::serve {
namespace {

constexpr std::array<std::string_view, 5> kMembers = {"rows", "model", "version", "id", "outputs"};

// The place in the document that the parser is in.
enum class InRows { kStart, kRequest, kOutputs, kRows, kRow, kList, kPair, kWeights, kEvents, kEvent, kPassedOver };

constexpr const char* kHistory = "history";  // the member of a row with its user's events

// Reads the rows of a request into its columns.
class RowsReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  RowsReader(std::string_view text, const config::JsonSource& source, const ModelDescription& model,
             const InferLimits& limits)
      : text_(text), source_(source), model_(model), limits_(limits), columns_(row_columns(model, limits.columns)) {
    for (RowColumn& column : columns_) by_field_[column.form().field].push_back(&column);
    if (limits.maker != nullptr) events_.emplace(limits.maker->event_columns());
    const bool named = by_field_.count(kHistory) > 0 || (limits.columns != nullptr && limits.columns->reads(kHistory));
    brings_events_ = events_ && !named;
  }

  InferJson take() {
    if (!rows_) fail(Code::kInvalidArgument, "the request has no \"rows\": send ", example());
    if (row_ == 0) fail(Code::kInvalidArgument, "a request needs at least one row: send ", example());
    if (answers_items(model_) && !out_.outputs.empty())
      fail(Code::kInvalidArgument, "each row is answered with \"items\", so \"outputs\" has no effect: leave it out");
    for (const RowColumn& column : columns_) column.give(out_);
    return std::move(out_);
  }

  bool start_object(size_t) override {
    switch (top()) {
      case InRows::kStart:
        return enter(InRows::kRequest);
      case InRows::kRows:
        begin_row();
        return enter(InRows::kRow);
      case InRows::kEvents:
        events_->begin();
        return enter(InRows::kEvent);
      case InRows::kEvent:
        return part_of_event("an object");
      case InRows::kRow:
        if (brings_events_ && key_ == kHistory) no_events();
        for (RowColumn* column : current_) {
          if (!column->form().weighted)
            column->refuse(column->takes_lists() ? "the model takes no weights there: send a list of values"
                                                 : "it takes one value");
        }
        return enter(current_.empty() ? InRows::kPassedOver : InRows::kWeights);
      default:
        return nested("an object");
    }
  }
  bool start_array(size_t) override {
    switch (top()) {
      case InRows::kRequest:
        if (key_ == "rows") {
          if (rows_) fail(Code::kInvalidArgument, "\"rows\" is there twice");
          rows_ = true;
          return enter(InRows::kRows);
        }
        if (key_ == "outputs") return enter(InRows::kOutputs);
        return wrong("an array");
      case InRows::kEvent:
        return part_of_event("a list");
      case InRows::kRow:
        if (brings_events_ && key_ == kHistory) {
          if (std::exchange(brought_, true)) fail(Code::kInvalidArgument, "row ", row_, ": \"history\" is there twice");
          return enter(InRows::kEvents);
        }
        for (RowColumn* column : current_) {
          if (!column->takes_lists()) column->refuse("it takes one value, not a list");
        }
        return enter(current_.empty() ? InRows::kPassedOver : InRows::kList);
      case InRows::kList:
        for (RowColumn* column : current_) {
          if (!column->form().weighted) column->refuse("it takes a list of values, not of lists");
        }
        pair_ = 0;
        return enter(InRows::kPair);
      default:
        return nested("an array");
    }
  }
  bool end_object() override {
    if (top() == InRows::kEvent) end_event();
    if (top() == InRows::kRow) {
      if (limits_.maker != nullptr) fill_histories();
      for (RowColumn& column : columns_) column.end_row(row_);
    }
    return leave();
  }
  bool end_array() override {
    if (top() == InRows::kPair && pair_ != 2) {
      for (RowColumn* column : current_) column->refuse("a pair is [value, weight]");
    }
    return leave();
  }
  bool key(string_t& name) override {
    key_ = std::move(name);
    if (top() == InRows::kRequest && std::find(kMembers.begin(), kMembers.end(), key_) == kMembers.end())
      fail(Code::kInvalidArgument, '"', shown(key_), "\" is not a member of a request: send ", example());
    if (top() == InRows::kRow) find_columns();
    if (top() == InRows::kWeights) value(std::string_view(key_), true);
    return true;
  }

  bool null() override { return value(std::monostate(), false); }
  bool boolean(bool v) override { return value(v, false); }
  bool number_integer(number_integer_t v) override { return value(int64_t{v}, false); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return value(static_cast<int64_t>(v), false);
    return value(uint64_t{v}, false);
  }
  bool number_float(number_float_t v, const string_t& text) override { return value(row_value(v, text), false); }
  bool string(string_t& v) override {
    if (top() == InRows::kOutputs) {
      if (out_.outputs.size() == kMostOutputs + model_.outputs.size())
        fail(Code::kInvalidArgument, "the request asks for too many outputs");
      out_.outputs.push_back({std::move(v), std::nullopt});
      return true;
    }
    if (top() == InRows::kRequest && key_ == "id") {
      out_.id = std::move(v);
      return true;
    }
    if (top() == InRows::kRequest && (key_ == "model" || key_ == "version")) {
      is_for(key_ == "model" ? served_name(model_, limits_) : std::string_view(model_.version), v);
      return true;
    }
    return value(std::string_view(v), false);
  }
  bool binary(binary_t&) override { return wrong("bytes"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kTooLarge = 406;  // exponent of a number that is too large
    if (e.id == kTooLarge) fail(Code::kInvalidArgument, "the request holds a number that is too large");
    config::no_json(text_, source_, position);
  }

 private:
  static constexpr size_t kMostOutputs = 16;

  InRows top() const { return stack_.empty() ? InRows::kStart : stack_.back(); }
  bool enter(InRows where) {
    stack_.push_back(where);
    return true;
  }
  bool leave() {
    stack_.pop_back();
    return true;
  }
  std::string example() const { return example_rows(model_, limits_.columns); }
  [[noreturn]] bool wrong(const char* what) const {
    if (top() == InRows::kRequest) fail(Code::kInvalidArgument, '"', key_, "\" cannot be ", what, ": send ", example());
    if (top() == InRows::kEvents) no_events();
    if (top() == InRows::kOutputs) fail(Code::kInvalidArgument, "\"outputs\" are names of heads, not ", what);
    if (top() == InRows::kRows)
      fail(Code::kInvalidArgument, "row ", row_ + 1, " cannot be ", what, ", it is an object: send ", example());
    fail(Code::kInvalidArgument, "the request cannot be ", what, ": send ", example());
  }
  bool nested(const char* what) {
    if (top() == InRows::kPassedOver) return enter(InRows::kPassedOver);
    if (top() != InRows::kList && top() != InRows::kPair && top() != InRows::kWeights) return wrong(what);
    current_.front()->refuse(top() == InRows::kWeights ? "a weight is a number, not " : "a value of a list cannot be ",
                             what);
  }

  void is_for(std::string_view mine, std::string_view said) const {
    if (mine != said)
      fail(Code::kInvalidArgument, "the request names ", key_, " \"", shown(said), "\", but was sent to \"", mine, '"');
  }
  void begin_row() {
    if (row_ == limits_.max_samples)
      fail(Code::kInvalidArgument, "a request of more than ", limits_.max_samples,
           " rows is too large: send them in several requests");
    ++row_;
    user_.clear();
    brought_ = false;
    if (events_) events_->clear();
  }
  [[noreturn]] void no_events() const {
    fail(Code::kInvalidArgument, "row ", row_, ": \"history\" is a list of events, [{...}], with ", events_->names());
  }
  // A part of an event is passed over if the histories have none of that name, as in files.
  bool part_of_event(const char* what) {
    if (events_->has_column(key_))
      fail(Code::kInvalidArgument, "row ", row_, ", event ", events_->size(), ", column \"", key_, "\" cannot be ",
           what, ": an event has one value in it");
    return enter(InRows::kPassedOver);
  }
  void set_in_event(const RowValue& v) {
    try {
      events_->set(key_, v);
    } catch (const Error& e) {
      fail(Code::kInvalidArgument, "row ", row_, ", event ", events_->size(), ", ", e.what());
    }
  }
  void end_event() {
    try {
      if (!events_->has(limits_.maker->user_column()))
        events_->set(limits_.maker->user_column(), std::monostate());  // the row's
      events_->end(0);
    } catch (const Error& e) {
      fail(Code::kInvalidArgument, "row ", row_, ", event ", events_->size(), ", ", e.what());
    }
  }
  // Gives the row the lists of its user, unless it brings them itself.
  void fill_histories() {
    const std::vector<std::string>& lists = limits_.maker->lists();
    const auto given = std::find_if(columns_.begin(), columns_.end(), [&](const RowColumn& column) {
      return column.given() && std::find(lists.begin(), lists.end(), column.form().field) != lists.end();
    });
    if (given != columns_.end() && brought_)
      fail(Code::kInvalidArgument, "row ", row_, " has \"history\" and \"", given->form().field,
           "\", which it is made into: send one of them");
    if (given != columns_.end() || (!brought_ && limits_.kept == nullptr)) return;
    const HistoryMaker::Taken taken = take_histories();
    for (size_t k = 0; k < lists.size(); ++k) {
      const auto found = by_field_.find(lists[k]);
      if (found == by_field_.end()) continue;
      if (!brought_ && !limits_.kept->keeps(lists[k]))
        fail(
            Code::kInvalidArgument, "row ", row_, ", column \"", lists[k],
            "\": the server does not keep it, because the model that it began with does not take it: start the server ",
            "again");
      for (RowColumn* column : found->second) {
        column->begin(row_);
        for (const std::string& text : taken.lists[k]) column->take(std::string_view(text), true);
      }
    }
  }
  HistoryMaker::Taken take_histories() {
    if (brought_) {
      try {
        return limits_.maker->after(*events_, user_);
      } catch (const Error& e) {
        fail(e.code(), "row ", row_, ", ", e.what());
      }
    }
    const std::string& name = limits_.maker->user_column();
    if (user_.empty())
      fail(Code::kInvalidArgument, "row ", row_, ", column \"", name,
           "\": the row has no user: name one, whose history the server keeps, or send its events as \"history\"");
    HistoryMaker::Taken out = limits_.kept->take(user_);
    if (out.events == 0 && answers_items(model_))
      fail(Code::kInvalidArgument, "row ", row_, ", column \"", name, "\": the server has no events of the user \"",
           shown(user_), "\", so there is nothing to find items by: send its events as \"history\"");
    return out;
  }
  // Finds the columns that the key means. There is none if the model does not take this column of the data.
  void find_columns() {
    const auto found = by_field_.find(key_);
    current_ = found == by_field_.end() ? std::vector<RowColumn*>() : found->second;
    for (RowColumn* column : current_) column->begin(row_);
    if (!current_.empty() || (limits_.columns != nullptr && limits_.columns->reads(key_))) return;
    if (limits_.maker != nullptr && (key_ == limits_.maker->user_column() || (brings_events_ && key_ == kHistory)))
      return;
    std::vector<std::string> known;
    for (const RowColumn& column : columns_) {  // several may read the same key
      const std::string& field = column.form().field;
      if (std::find(known.begin(), known.end(), field) == known.end()) known.push_back(field);
    }
    fail(Code::kInvalidArgument, "row ", row_, ": the model has no column \"", shown(key_), '"',
         sdk::nearest_text(key_, known), ", of ", listed(known));
  }
  bool value(const RowValue& v, bool is_key) {
    switch (top()) {
      case InRows::kRow:
        if (limits_.maker != nullptr && key_ == limits_.maker->user_column()) user_ = text_of(v);
        if (brings_events_ && key_ == kHistory && !std::holds_alternative<std::monostate>(v)) no_events();
        [[fallthrough]];
      case InRows::kList:
        for (RowColumn* column : current_) {
          if (top() == InRows::kList) column->check_item(v);
          column->take(v, top() == InRows::kList);
        }
        return true;
      case InRows::kEvent:
        set_in_event(v);
        return true;
      case InRows::kPair:
        for (RowColumn* column : current_) {
          if (pair_ > 1) column->refuse("a pair is [value, weight]");
          pair_ == 0 ? column->take(v, true) : column->weigh(v);
        }
        ++pair_;
        return true;
      case InRows::kWeights:
        for (RowColumn* column : current_) is_key ? column->take(v, true) : column->weigh(v);
        return true;
      case InRows::kPassedOver:
        return true;
      default:
        return wrong("a single value");
    }
  }

  const std::string_view text_;
  const config::JsonSource& source_;
  const ModelDescription& model_;
  const InferLimits& limits_;
  std::vector<RowColumn> columns_;
  std::map<std::string, std::vector<RowColumn*>, std::less<>> by_field_;
  std::vector<RowColumn*> current_;  // the columns that the row's current member is a value of
  InferJson out_;
  std::vector<InRows> stack_;
  std::string key_;
  int64_t row_ = 0;
  int pair_ = 0;  // values of the current pair so far
  bool rows_ = false;
  std::optional<EventRows> events_;  // of the row; unset: the model knows no histories
  bool brings_events_ = false;       // a row may have them, because no column has their name
  bool brought_ = false;             // this row has them
  std::string user_;                 // of the row; empty: it has none
};

// Reads "model" and "version", wherever they are.
class TargetReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TargetReader(std::string_view text, const config::JsonSource& source) : text_(text), source_(source) {}
  ScoreTarget take() { return std::move(out_); }

  bool start_object(size_t) override { return ++depth_ > 0; }
  bool start_array(size_t) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    key_ = depth_ == 1 ? std::move(name) : "";
    return true;
  }
  bool string(string_t& v) override {
    if (depth_ == 1 && key_ == "model")
      out_.model = std::move(v);
    else if (depth_ == 1 && key_ == "version")
      out_.version = std::move(v);
    return true;
  }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kTooLarge = 406;
    if (e.id == kTooLarge) fail(Code::kInvalidArgument, "the request holds a number that is too large");
    config::no_json(text_, source_, position);
  }

 private:
  bool other() const {
    if (depth_ == 1 && (key_ == "model" || key_ == "version")) fail(Code::kInvalidArgument, '"', key_, "\" is a text");
    return true;
  }

  const std::string_view text_;
  const config::JsonSource& source_;
  ScoreTarget out_;
  std::string key_;
  int depth_ = 0;
};

}  // namespace

ScoreTarget score_target(std::string_view body) {
  const config::JsonSource source{"the request"};
  config::check_json(body, source);
  TargetReader reader(body, source);
  nlohmann::json::sax_parse(body.begin(), body.end(), &reader);
  return reader.take();
}

InferRequest parse_scores(const ModelDescription& model, std::string_view body, const InferLimits& limits) {
  const config::JsonSource source{"the request"};
  config::check_json(body, source);
  RowsReader reader(body, source, model, limits);
  nlohmann::json::sax_parse(body.begin(), body.end(), &reader);
  InferJson json = reader.take();
  try {
    InferRequest out = take_tensors(model, json.view(""), limits);
    out.rows = true;
    return out;
  } catch (const MissingInput& missing) {
    fail(Code::kInternal, "the rows have no ", missing.name);
  } catch (const Error& e) {
    fail(e.code(), row_error(e.what(), limits.columns));
  }
}

std::string example_rows(const ModelDescription& model, const ColumnEncoding* columns) {
  constexpr size_t kMost = 4;
  std::string row;
  size_t told = 0;
  const std::vector<RowColumn> all = row_columns(model, columns);
  std::set<std::string> fields;
  for (const RowColumn& column : all) {
    const RowColumn::Form& form = column.form();
    if (!fields.insert(form.field).second) continue;  // several columns may read the same field
    if (told++ == kMost) {
      row += ", ...";
      break;
    }
    const std::string value = form.kind == RowColumn::Kind::kTexts     ? "\"a\""
                              : form.kind == RowColumn::Kind::kArray   ? "[0.5, ...]"
                              : form.takes_all && !form.counts_missing ? "\"2024-01-31\""
                                                                       : "1";
    row += str_cat(row.empty() ? "" : ", ", '"', form.field,
                   "\": ", form.weighted ? str_cat("[[", value, ", 0.5]]") : value);
  }
  return str_cat("{\"rows\": [{", row, "}]}");
}

}  // namespace tessera::serve
