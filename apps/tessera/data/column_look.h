// What the fields of a column look like: counts of one after the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::cli {

struct ColumnSeen {
  static constexpr size_t kMostDistinct = 20000;  // that are counted

  std::string name;
  int64_t fields = 0, missing = 0, numbers = 0, whole = 0;
  double least = 0, most = 0, sum = 0;
  std::vector<std::string> distinct;       // in ascending order
  bool more = false;                       // there are others
  std::vector<std::string> missing_words;  // of numbers: "NA", "?", which are counted as missing
  size_t ids = 0, once = 0;                // distinct fields, or items of the list in text, and how many came once
  bool list = false;                       // of a format that has lists: fields are their values
  bool weighted = false;                   // a list whose items have weights
  char separator = 0;                      // of a list in text; 0: it seems to be none
  size_t wholes = 0;                       // distinct fields of a list in text that have several items
  char other_separator = 0;                // of a category that could be a list of words as well; else 0
};

class ColumnLook {
 public:
  ColumnLook(std::string name, bool list, bool weighted);

  void add(std::string_view field);
  // What was seen. `words_may_miss`: the reader can take words as NA for no number.
  ColumnSeen seen(bool words_may_miss) const;

 private:
  using Counts = std::unordered_map<std::string, int64_t>;
  // The fields, cut at one separator.
  struct Items {
    char separator;
    int64_t fields = 0;          // that have the separator
    int64_t weighted_alone = 0;  // of the others
    size_t all = 0, empty = 0, weighted = 0;
    Counts distinct = {}, ids = {};  // ids: without their weights, as long as all have one
  };
  enum class Reading { kWhole, kEither, kList, kWeighted };

  static void add_items(std::string_view field, Items& items);
  static Reading reading(const Items& items, const ColumnSeen& seen, size_t wholes);
  void cut_into_items(ColumnSeen& seen, const Counts& fields) const;
  void add_number(double value);

  ColumnSeen seen_;
  Counts fields_;
  std::map<std::string, int64_t> missing_words_;
  std::vector<Items> items_ = {{'|'}, {';'}, {','}, {' '}};
};

}  // namespace tessera::cli
