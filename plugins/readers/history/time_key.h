// The order of events in time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

namespace tessera_readers {

// A number or a time that can be compared with others of its kind.
struct TimeKey {
  double number = 0;  // the nearest double of a number; for a time: seconds since 1970
  int64_t rest = 0;   // orders numbers that have the same double, by their digits; for a time: nanoseconds
  bool operator<(const TimeKey& other) const { return std::tie(number, rest) < std::tie(other.number, other.rest); }
};

// True for a number with more digits than are compared.
bool has_too_many_digits(std::string_view text);

// Parses the times of a column. All are numbers, or all are dates and times. The form is given, or the first value
// decides it.
class TimeKeys {
 public:
  enum class Form { kUnknown, kNumber, kTime };
  explicit TimeKeys(Form form = Form::kUnknown) : form_(form), given_(form != Form::kUnknown) {}
  // Unset: the text is empty, has too many digits, or does not have the form of the first value.
  std::optional<TimeKey> parse(std::string_view text);
  Form form() const { return form_; }
  bool given() const { return given_; }

 private:
  Form form_;
  bool given_;
};

// Returns the time of an event. If the text is not a time, it calls wrong(parts...), which fails with a message about
// the column.
template <class Wrong>
TimeKey time_of_event(TimeKeys& keys, std::string_view text, const Wrong& wrong) {
  const std::optional<TimeKey> key = keys.parse(text);
  if (key) return *key;
  if (text.empty()) wrong("the event has no time: leave out such rows");
  if (keys.form() != TimeKeys::Form::kTime && has_too_many_digits(text))
    wrong("\"", text, "\" has more than 19 significant digits, which are the most that are compared: round the times");
  if (keys.form() != TimeKeys::Form::kUnknown)
    wrong("\"", text, "\" is not a ", keys.form() == TimeKeys::Form::kNumber ? "number" : "time",
          keys.given() ? ", as the times are that the model was trained on" : ", but the first value is one");
  wrong("\"", text, "\" is not a time: history.time takes numbers, or dates and times such as 2024-01-31 or ",
        "2024-01-31 12:34:56");
  return {};
}

}  // namespace tessera_readers
