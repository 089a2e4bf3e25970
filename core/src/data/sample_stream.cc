#include "data/sample_stream.h"

#include <algorithm>

#include "tessera/sdk/random.h"

namespace tessera::data {

int64_t ColumnFiles::memory_of(const BlockPiece& piece) const {
  const FileBlock& block = part->blocks()[static_cast<size_t>(piece.block)];
  return columns->memory_of(piece.rows, block.bytes);
}

void ColumnFiles::append(const BlockPiece& piece, Examples& examples) const {
  const FileBlock& block = part->blocks()[static_cast<size_t>(piece.block)];
  const std::string file = part->file(block.file);
  part->read(piece.block, [&](std::span<const tsr_reader_values> values) {
    columns->append({file, block.first_row, piece.first, piece.rows}, values, examples);
  });
}

SampleStream::SampleStream(std::shared_ptr<const ColumnFiles> files, std::vector<BlockPiece> pieces,
                           int64_t window_bytes, RowChoice choice)
    : files_(std::move(files)),
      pieces_(std::move(pieces)),
      choice_(std::move(choice)),
      form_(static_cast<size_t>(files_->columns->dense_width()), files_->columns->ids(), files_->columns->label_form()),
      window_bytes_(window_bytes) {
  for (BlockPiece& piece : pieces_) {
    piece.samples = choice_.random ? 0 : piece.rows;
    for (int64_t row = 0; choice_.random && row < piece.rows; ++row) piece.samples += takes(piece, row) ? 1 : 0;
    size_ += piece.samples;
  }
}

void SampleStream::append(const BlockPiece& piece, Examples& examples) const {
  const int64_t before = examples.size();
  files_->append(piece, examples);
  if (choice_.random) (void)examples.take_out(before, [&](int64_t sample) { return !takes(piece, sample - before); });
}

std::shared_ptr<const SampleStream> SampleStream::with(std::vector<BlockPiece> pieces) const {
  auto out = std::make_shared<SampleStream>(files_, std::move(pieces), window_bytes_, choice_);
  out->known_ids_ = known_ids_.load();
  return out;
}

bool SampleStream::goes_on(size_t piece) const {
  const BlockPiece& p = pieces_[piece];
  return piece > 0 && files_->part->blocks()[static_cast<size_t>(p.block)].behind &&
         pieces_[piece - 1].block + 1 == p.block;
}

ExamplesPtr SampleStream::some(int64_t most) const {
  constexpr size_t kPieces = 16;
  const size_t taken = std::min(kPieces, pieces_.size());
  bool anywhere = true;
  for (size_t i = 0; i < pieces_.size(); ++i) anywhere = anywhere && !goes_on(i);
  Examples out = form_;
  for (size_t i = 0; i < taken; ++i) {
    BlockPiece piece = pieces_[anywhere ? i * pieces_.size() / taken : i];
    piece.rows = std::min(piece.rows, most / static_cast<int64_t>(taken));
    append(piece, out);
  }
  return std::make_shared<const Examples>(std::move(out));
}

std::vector<SampleStream::Window> SampleStream::epoch(uint64_t seed, bool shuffle) const {
  std::vector<std::pair<size_t, size_t>> runs;  // pieces that are read in sequence: [first, second)
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (!goes_on(i)) runs.emplace_back(i, i);
    runs.back().second = i + 1;
  }
  std::vector<uint32_t> order = sdk::shuffled(runs.size(), sdk::combine(seed, 1));
  if (!shuffle) std::sort(order.begin(), order.end());
  std::vector<Window> windows;
  int64_t bytes = 0, samples = 0;
  for (const uint32_t run : order) {
    for (size_t i = runs[run].first; i < runs[run].second; ++i) {
      const int64_t more = files_->memory_of(pieces_[i]);
      if (windows.empty() || bytes + more > window_bytes_) {
        windows.push_back({{}, samples, 0});
        bytes = 0;
      }
      windows.back().pieces.push_back(pieces_[i]);
      windows.back().size += pieces_[i].samples;
      samples += pieces_[i].samples;
      bytes += more;
    }
  }
  return windows;
}

Examples SampleStream::load(std::span<const BlockPiece> pieces, std::unique_ptr<Examples> memory) const {
  Examples out = form_;
  if (memory) {
    memory->clear();
    out = std::move(*memory);
  }
  int64_t rows = 0;
  for (const BlockPiece& piece : pieces) rows += piece.samples;
  for (const BlockPiece& piece : pieces) {
    append(piece, out);
    if (&piece == pieces.data()) out.reserve(rows + rows / 32);  // a margin, because growing would copy everything
    if (known_ids_ && !out.bad_id().empty()) fail(Code::kInvalidArgument, out.bad_id());
  }
  return out;
}

void SampleCursor::start_epoch(int64_t epoch) {
  forget_next();
  while (!loaded_.empty()) drop_first();
  seed_ = sdk::combine(options_.seed, static_cast<uint64_t>(epoch));
  windows_ = stream_->epoch(seed_, options_.shuffle);
}

SampleCursor::Loaded SampleCursor::load(size_t index, std::unique_ptr<Examples> memory) const {
  const SampleStream::Window& window = windows_[index];
  const size_t n = window.pieces.size(), world = static_cast<size_t>(options_.world_size);
  const size_t begin = n * static_cast<size_t>(options_.rank) / world;
  const size_t end = n * (static_cast<size_t>(options_.rank) + 1) / world;
  int64_t first = 0;
  for (size_t i = 0; i < begin; ++i) first += window.pieces[i].samples;
  Loaded out{index, stream_->load(std::span(window.pieces).subspan(begin, end - begin), std::move(memory)), first, {}};
  if (options_.shuffle) out.order = sdk::shuffled(static_cast<size_t>(window.size), sdk::combine(seed_, index + 2));
  return out;
}

const SampleCursor::Loaded& SampleCursor::loaded(size_t window) {
  for (const Loaded& one : loaded_) {
    if (one.window == window) return one;
  }
  const bool behind = !loaded_.empty() && loaded_.back().window + 1 == window;
  if (behind && next_.valid()) return loaded_.emplace_back(next_.get());
  if (!behind) {  // the position has jumped
    forget_next();
    while (!loaded_.empty()) drop_first();
  }
  begin_to_load(window);
  return loaded_.emplace_back(next_.get());
}

void SampleCursor::begin_to_load(size_t window) {
  next_ = reader_.run([this, window, memory = take_spare()]() mutable { return load(window, std::move(memory)); });
}

void SampleCursor::forget_next() {
  if (next_.valid()) next_.wait();
  next_ = {};
}

void SampleCursor::take(int64_t begin, int64_t end, std::vector<SampleRef>& out) {
  out.clear();
  const auto end_of = [&](size_t w) { return windows_[w].first + windows_[w].size; };
  size_t w = 0;
  while (w < windows_.size() && end_of(w) <= begin) ++w;
  while (loaded_.size() > 1 && loaded_.front().window < w) drop_first();
  for (; w < windows_.size() && windows_[w].first < end; ++w) {
    const SampleStream::Window& window = windows_[w];
    const Loaded& l = loaded(w);
    for (int64_t p = std::max(begin, window.first); p < std::min(end, end_of(w)); ++p) {
      const int64_t in_window = p - window.first;
      const int64_t own = (l.order.empty() ? in_window : l.order[static_cast<size_t>(in_window)]) - l.first;
      if (own >= 0 && own < l.own.size()) out.push_back({&l.own, own});
    }
  }
  if (loaded_.size() == 1 && !next_.valid() && loaded_.back().window + 1 < windows_.size())
    begin_to_load(loaded_.back().window + 1);
}

void SampleCursor::drop_first() {
  spare_.push_back(std::make_unique<Examples>(std::move(loaded_.front().own)));
  loaded_.pop_front();
}

std::unique_ptr<Examples> SampleCursor::take_spare() {
  if (spare_.empty()) return nullptr;
  std::unique_ptr<Examples> out = std::move(spare_.back());
  spare_.pop_back();
  return out;
}

}  // namespace tessera::data
