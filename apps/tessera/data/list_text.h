// Recognises fields of text that are lists of items, and the separator between the items.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/number_summary.h"

namespace tessera::cli {

// `text` without blanks and tabs at its ends.
std::string_view trimmed(std::string_view text);

// Finds the text between the brackets of "[3, 17]". Returns false if it is not a list of items in brackets.
bool list_in_brackets(std::string_view text, std::string_view& inside);

class ListText {
 public:
  // One distinct field, and the number of rows that have it.
  struct Value {
    std::string text;
    int64_t count = 0;
    int64_t tail = 0;  // those of the rows that are in the last tenth
  };

  ListText() = default;
  // `there` is the number of rows with a value. `exact` is true if `values` has all distinct fields.
  ListText(const std::vector<Value>& values, int64_t there, bool exact);

  char separator() const { return separator_; }  // 0 if the fields do not seem to be lists
  bool bracketed() const { return bracketed_; }  // written as [3, 17]
  bool weighted() const { return weighted_; }    // each item is id:weight
  bool nested() const { return nested_; }        // most fields begin with [ or { but are not lists of items
  // separator of a category that could also be a list of words
  char other_separator() const { return other_separator_; }
  // The text between parts that repeat, in fields of an unusual notation; empty if there is none. `gaps`: some parts
  // are empty.
  const std::string& parts_separator() const { return parts_separator_; }
  bool gaps() const { return gaps_; }
  // Lists in brackets that no reader takes: a field with None or nan as an item, or one that was cut as [1 2 ... 9].
  const std::string& with_missing() const { return with_missing_; }
  const std::string& cut_off() const { return cut_off_; }
  // An item of lists without brackets that usually stands for a missing value: NA, null, ...; empty if there is none.
  const std::string& missing_word() const { return missing_word_; }
  int64_t wholes() const { return wholes_; }                 // distinct fields that have several items
  int64_t distinct() const { return distinct_; }             // distinct items
  int64_t once() const { return once_; }                     // items that occurred once
  const NumberSummary& lengths() const { return lengths_; }  // items of each row that has a value

 private:
  using Counts = std::unordered_map<std::string, int64_t>;
  // The fields split at one separator; counts are rows.
  struct Items {
    int64_t fields = 0;          // fields with the separator
    int64_t weighted_alone = 0;  // weighted fields without it
    int64_t wholes = 0;          // distinct fields with it
    int64_t all = 0, empty = 0, weighted = 0;
    int64_t unbalanced = 0;  // fields whose first item opens a bracket and does not close it
    NumberSummary lengths;
    Counts distinct, ids;  // ids are items without their weights, as long as all have one
  };
  enum class Reading { kWhole, kEither, kList, kWeighted };

  static Items cut(const std::vector<Value>& values, char separator);
  static Reading reading(const Items& items, char separator, int64_t there, bool exact);
  bool take_brackets(const std::vector<Value>& values);
  void look_for_no_item(std::string_view item, const std::string& field);
  void take(const Items& items, char separator, bool weighted);
  void find_parts(const std::vector<Value>& values, int64_t there);

  char separator_ = 0, other_separator_ = 0;
  bool bracketed_ = false, weighted_ = false, nested_ = false;
  std::string parts_separator_, with_missing_, cut_off_, missing_word_;
  bool gaps_ = false;
  int64_t wholes_ = 0, distinct_ = 0, once_ = 0;
  NumberSummary lengths_;
};

}  // namespace tessera::cli
