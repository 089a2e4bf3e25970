// The reader movielens-100k: turns MovieLens-100K, as RecBole packs it, into prepared lines.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "prepared.h"

namespace tessera_readers {

// The prepared lines (train.tsv, test.tsv) made from ml-100k.inter, .item and .user in `directory`: labels, seven dense
// values, and nine columns that depend only on earlier ratings. `split`: "user" (the last floor(n/5) rows of each user
// are the test) or "time" (the last fifth of all rows is).
struct PreparedText {
  std::string train, test;
  SampleForm form;
};
PreparedText prepare_movielens_100k(const std::string& directory, const std::string& split);

class MovieLens : public Prepared {
 public:
  explicit MovieLens(tessera::sdk::Options& options);
  const void* extension(std::string_view id) const { return tessera::sdk::paths_extension<MovieLens>(id); }

  const char* opens(const std::string& path);
  const char* describe(const std::string& path);
  void open(std::string_view path, int64_t block_bytes) override;
  const std::vector<tessera::sdk::ReaderBlock>& blocks() const override { return parts_; }

 private:
  std::string_view text_of(int64_t block) override;

  std::string split_;
  PreparedText text_;
  std::vector<tessera::sdk::ReaderBlock> parts_;  // a block for each part that has rows
};

}  // namespace tessera_readers
