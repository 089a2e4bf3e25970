// Lists as programs print them: [3, 17], ['a', "b"], (1, 2), {1, 2}, [1 2 3] and {"a": 0.5}.
#pragma once

#include <string>
#include <string_view>

namespace tessera_readers {

class BracketedList {
 public:
  // True for a field whose first bracket is closed by its last character. Throws WrongField for one that begins with [
  // or { and is none: those are no items of other lists either.
  static bool begins(std::string_view field);

  // Items are separated by `separator`, and by commas if that is a blank or there are commas. begins(field) is true.
  BracketedList(std::string_view field, char separator);
  // The next item without its quotes, and what stands behind a quoted one and a colon. False at the end. Valid until
  // the next call. Throws WrongField.
  bool next(std::string_view& item, std::string_view& weight);
  bool quoted() const { return quoted_; }  // the last item

 private:
  std::string_view to_separator();
  void take_quoted();
  void take_unicode(std::string_view& text);
  void skip_blanks();

  std::string_view rest_, field_;
  char separator_;
  bool quoted_ = false;
  std::string scratch_;
};

}  // namespace tessera_readers
