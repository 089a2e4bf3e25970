// Parses lists as programs print them: [3, 17], ['a', "b"], (1, 2), {1, 2}, [1 2 3] and {"a": 0.5}.
#pragma once

#include <string>
#include <string_view>

namespace tessera_readers {

class BracketedList {
 public:
  // True for a field whose first bracket is closed by its last character. Throws WrongField for a field that begins
  // with [ or { but is not a list, because it is not an item of another list either.
  static bool begins(std::string_view field);

  // Items are separated by `separator`. If that is a blank, or if there are commas, commas also separate. begins(field)
  // must be true.
  BracketedList(std::string_view field, char separator);
  // The next item without its quotes, and the text after a quoted item and a colon. Returns false at the end. Valid
  // until the next call. Throws WrongField.
  bool next(std::string_view& item, std::string_view& weight);
  bool quoted() const { return quoted_; }  // true if the last item was quoted

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
