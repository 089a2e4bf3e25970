// Which fields of text are lists of items, and what stands between the items.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::cli {

// Without blanks and tabs at its ends.
std::string_view trimmed(std::string_view text);

class ListText {
 public:
  // A different field, and how many rows have it.
  struct Value {
    std::string text;
    int64_t count = 0;
    int64_t tail = 0;  // of these in the last tenth of the rows
  };

  ListText() = default;
  // `there`: rows that have a value; `exact`: `values` are all different fields.
  ListText(const std::vector<Value>& values, int64_t there, bool exact);

  char separator() const { return separator_; }              // 0: the fields seem to be no lists
  bool bracketed() const { return bracketed_; }              // written as [3, 17]
  bool weighted() const { return weighted_; }                // each item is id:weight
  bool nested() const { return nested_; }                    // most fields begin with [ or { and are no lists of items
  char other_separator() const { return other_separator_; }  // of a category that could be a list of words as well
  int64_t wholes() const { return wholes_; }                 // different fields that have several items
  int64_t distinct() const { return distinct_; }             // items
  int64_t once() const { return once_; }                     // items that came once
  double mean_length() const { return mean_length_; }
  int64_t longest() const { return longest_; }

 private:
  using Counts = std::unordered_map<std::string, int64_t>;
  // The fields, cut at one separator; counts are of rows.
  struct Items {
    int64_t fields = 0;          // that have the separator
    int64_t weighted_alone = 0;  // of the others
    int64_t wholes = 0;          // different ones
    int64_t all = 0, empty = 0, weighted = 0, longest = 0;
    Counts distinct, ids;  // ids: without their weights, as long as all have one
  };
  enum class Reading { kWhole, kEither, kList, kWeighted };

  static Items cut(const std::vector<Value>& values, char separator);
  static Reading reading(const Items& items, char separator, int64_t there, bool exact);
  bool take_brackets(const std::vector<Value>& values);
  void take(const Items& items, char separator, bool weighted);

  char separator_ = 0, other_separator_ = 0;
  bool bracketed_ = false, weighted_ = false, nested_ = false;
  int64_t wholes_ = 0, distinct_ = 0, once_ = 0, longest_ = 0;
  double mean_length_ = 0;
};

}  // namespace tessera::cli
