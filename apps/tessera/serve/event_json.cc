#include "serve/event_json.h"

#include <limits>

#include "config/json.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

// Keeps the events before the first bad one, and reads on, because the text may be no JSON further on.
class EventsReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  EventsReader(std::string_view text, const config::JsonSource& source, const std::vector<std::string>& columns)
      : text_(text), source_(source), out_{EventRows(columns)} {}

  JsonEvents take() {
    if (!listed_) no_list();
    if (number_ == 0) fail(Code::kInvalidArgument, "\"events\" is empty: ", example());
    if (out_.why.empty()) out_.good = number_;
    return std::move(out_);
  }

  bool start_object(size_t) override {
    if (depth_ == kInEvents) {
      ++number_;
      if (out_.why.empty()) out_.rows.begin();
    } else if (depth_ == kInEvent) {
      no_value();
    } else if (depth_ != 0 && depth_ < kInEvents) {
      no_list();
    }
    return ++depth_ > 0;
  }
  bool start_array(size_t) override {
    if (depth_ == kInRequest) {
      if (listed_) fail(Code::kInvalidArgument, "\"events\" is there twice");
      listed_ = true;
    } else if (depth_ == kInEvents) {
      ++number_;
      no_object();
    } else if (depth_ == kInEvent) {
      no_value();
    } else if (depth_ == 0) {
      no_list();
    }
    return ++depth_ > 0;
  }
  bool end_object() override {
    if (--depth_ == kInEvents) attempt([&] { out_.rows.end(0); });
    return true;
  }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    key_ = std::move(name);
    if (depth_ == kInRequest && key_ != "events")
      fail(Code::kInvalidArgument, '"', shown(key_), "\" is not a member of a request of events: ", example());
    return true;
  }

  bool null() override { return value(std::monostate()); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(int64_t{v}); }
  bool number_unsigned(number_unsigned_t v) override { return value(uint64_t{v}); }
  bool number_float(number_float_t v, const string_t& text) override { return value(row_value(v, text)); }
  bool string(string_t& v) override { return value(std::string_view(v)); }
  bool binary(binary_t&) override { return value(std::monostate()); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kTooLarge = 406;  // exponent of a number that is too large
    if (e.id == kTooLarge) fail(Code::kInvalidArgument, "the request holds a number that is too large");
    config::no_json(text_, source_, position);
  }

 private:
  static constexpr int kInRequest = 1, kInEvents = 2, kInEvent = 3;  // depths

  std::string example() const {
    return str_cat("send {\"events\": [{...}]}, in which an event has ", out_.rows.names());
  }
  [[noreturn]] void no_list() const {
    fail(Code::kInvalidArgument, "the request has no list of \"events\": ", example());
  }
  // Does it for the current event, unless an event was bad. An error makes this one bad.
  template <class Do>
  void attempt(const Do& act) {
    if (!out_.why.empty()) return;
    try {
      act();
    } catch (const Error& e) {
      bad(str_cat(", ", e.what()));
    }
  }
  void bad(const std::string& why) {
    if (!out_.why.empty()) return;
    out_.good = number_ - 1;
    out_.why = str_cat("event ", number_, why);
  }
  void no_object() { bad(str_cat(" is no object: ", example())); }
  void no_value() {
    if (out_.rows.has_column(key_)) bad(str_cat(", column \"", key_, "\": an event has one value in it"));
  }
  bool value(const RowValue& v) {
    if (depth_ < kInEvents) no_list();
    if (depth_ == kInEvents) {
      ++number_;
      no_object();
    }
    if (depth_ == kInEvent) attempt([&] { out_.rows.set(key_, v); });  // files have more columns, too
    return true;
  }

  const std::string_view text_;
  const config::JsonSource& source_;
  JsonEvents out_;
  std::string key_;
  int64_t number_ = 0;  // of the current event, from 1
  int depth_ = 0;
  bool listed_ = false;
};

}  // namespace

JsonEvents parse_events(std::string_view body, const std::vector<std::string>& columns) {
  const config::JsonSource source{"the request"};
  config::check_json(body, source);
  EventsReader reader(body, source, columns);
  nlohmann::json::sax_parse(body.begin(), body.end(), &reader);
  return reader.take();
}

}  // namespace tessera::serve
