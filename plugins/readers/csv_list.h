// Parses lists as programs print them: [3, 17], ['a', "b"], (1, 2), {1, 2}, [1 2 3], {"a": 0.5} and array([1, 2]).
#pragma once

#include <string>
#include <string_view>

namespace tessera_readers {

class BracketedList {
 public:
  // The list with its brackets, without a name around it: [3, 17] of array([3, 17], dtype=int64). Empty: the field is
  // no such list. Throws WrongField for a field that begins with [ or { but is not a list, because it is not an item of
  // another list either.
  static std::string_view inside(std::string_view field);

  // `list` is a text from inside(). Items are separated by `separator`. If that is a blank, or if there are commas,
  // commas also separate.
  BracketedList(std::string_view list, char separator);
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
