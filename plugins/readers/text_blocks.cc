#include "text_blocks.h"

#include "tessera/sdk/error.h"

namespace tessera_readers {

using tessera::sdk::fail;

std::string_view TextBlocks::load(int64_t block, const std::vector<std::string>& files) {
  const tessera::sdk::ReaderBlock& b = blocks_[static_cast<size_t>(block)];
  const Place& place = places_[static_cast<size_t>(block)];
  const std::string& path = files[static_cast<size_t>(b.file)];
  if (!open_file_ || open_file_->path() != path) open_file_ = std::make_unique<TextFile>(path, format_.encoding);
  text_.resize(static_cast<size_t>(place.bytes));
  size_t got = 0;
  try {
    if (open_file_->offset() != place.offset) open_file_->seek(place.offset);
    got = open_file_->read(text_.data(), text_.size());
  } catch (const Damaged& e) {
    fail(TSR_DATA_LOSS, path, " ", e.what(), " after row ", b.first_row);
  }
  if (got < text_.size()) changed(b, path);
  return {text_.data(), text_.size()};
}

void TextBlocks::changed(const tessera::sdk::ReaderBlock& block, const std::string& path) const {
  fail(TSR_DATA_LOSS, path, " has changed since it was opened, after row ", block.first_row);
}

}  // namespace tessera_readers
