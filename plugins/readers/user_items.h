// The reader user-items: turns lines of a user and items, in the order of time, into prepared rows. Of each user the
// last item is for the test, and the one before for validation.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prepared.h"

namespace tessera_readers {

// Texts of prepared lines: training, validation, test.
struct HistoryTexts {
  std::array<std::string, 3> parts;
  SampleForm form;
};
struct HistoryOptions {
  int64_t length = 50;  // the newest items of a user that a sample has
  bool split = true;    // false: one sample for each user, with all that it has had; for predictions
};
HistoryTexts prepare_user_items(const std::string& path, const HistoryOptions& options);

class UserItems : public Prepared {
 public:
  explicit UserItems(tessera::sdk::Options& options);
  const void* extension(std::string_view id) const { return tessera::sdk::paths_extension<UserItems>(id); }

  const char* opens(const std::string&) { return nullptr; }  // such lines have no name of their own
  const char* describe(const std::string& path);
  void open(std::string_view path, int64_t block_bytes) override;
  const std::vector<tessera::sdk::ReaderBlock>& blocks() const override { return blocks_of_parts_; }

 private:
  std::string_view text_of(int64_t block) override;

  HistoryOptions options_;
  HistoryTexts texts_;
  std::vector<tessera::sdk::ReaderBlock> blocks_of_parts_;  // a block for each part that has rows
};

}  // namespace tessera_readers
