#include "columnar/reader.h"

#include <algorithm>

#include "files.h"
#include "tessera/sdk/other_columns.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ReaderBlock;
using tessera::sdk::ReaderWant;

void next_batch(ArrowArrayStream& stream, ArrowOwner<ArrowArray>& batch) {
  if (stream.get_next(&stream, batch.out()) != 0) {
    const char* why = stream.get_last_error(&stream);
    throw BrokenStream(why != nullptr ? why : "no reason is given");
  }
  if (!batch) throw BrokenStream("it has fewer rows than it says");
}

int32_t type_of(const ArrowType& type) {
  return type.is_text() ? TSR_READER_TEXT : type.is_float() ? TSR_READER_FLOAT32 : TSR_READER_INT64;
}

}  // namespace

void ColumnarReader::open(std::string_view path, int64_t block_bytes) {
  files_ = files_of(path, endings_);
  blocks_.clear();
  file_columns_.clear();
  columns_.clear();
  places_.clear();
  wants_.clear();
  source_file_ = unit_ = -1;
  for (size_t i = 0; i < files_.size(); ++i) scan(static_cast<int64_t>(i), std::max<int64_t>(block_bytes, 1));
  for (const FileColumn& c : file_columns_.front()) {
    if (c.type)
      columns_.push_back(
          {c.name, type_of(*c.type), c.type->list != ArrowType::List::kNone, c.type->weight.has_value()});
  }
}

// A unit is cut into blocks of about as many rows each.
void ColumnarReader::scan(int64_t file, int64_t block_bytes) {
  const std::unique_ptr<ArrowSource> source = opener_(files_[static_cast<size_t>(file)]);
  const ArrowSchema& schema = source->schema();
  std::vector<FileColumn>& columns = file_columns_.emplace_back();
  for (int64_t i = 0; i < schema.n_children; ++i)
    columns.push_back({schema.children[i]->name, ArrowType::of(*schema.children[i])});
  int64_t first_row = 0;
  for (size_t u = 0; u < source->units().size(); ++u) {
    const ArrowSource::Unit& unit = source->units()[u];
    const int64_t cuts = std::clamp<int64_t>(unit.bytes / block_bytes, 1, std::max<int64_t>(unit.rows, 1));
    const int64_t rows = (unit.rows + cuts - 1) / cuts;
    for (int64_t first = 0; first < unit.rows; first += rows) {
      const int64_t here = std::min(rows, unit.rows - first);
      blocks_.push_back({file, first_row + first, here, unit.bytes / unit.rows * here, first > 0});
      places_.push_back({static_cast<int64_t>(u), first, rows});
    }
    first_row += unit.rows;
  }
}

int ColumnarReader::find(const std::string& name, size_t file) const {
  std::vector<std::string> names;
  for (const FileColumn& c : file_columns_[file]) names.push_back(c.name);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    fail(TSR_NOT_FOUND, files_[file], " has no column \"", name, "\"", tessera::sdk::other_columns(name, names));
  if (std::find(found + 1, names.end(), name) != names.end())
    fail(TSR_INVALID_ARGUMENT, files_[file], " has two columns named \"", name, "\"");
  return static_cast<int>(found - names.begin());
}

void ColumnarReader::select(std::span<const ReaderWant> wants) {
  for (const ReaderWant& want : wants) {
    for (size_t file = 0; file < files_.size(); ++file) {
      const std::optional<ArrowType>& type = file_columns_[file][static_cast<size_t>(find(want.name, file))].type;
      if (!type)
        fail(TSR_INVALID_ARGUMENT, files_[file], ", column \"", want.name,
             "\" is neither of numbers or texts nor of lists of them");
      (void)ArrowColumn(want, *type, files_[file]);
    }
  }
  wants_.assign(wants.begin(), wants.end());
  source_file_ = unit_ = -1;
}

void ColumnarReader::start_file(int64_t file) {
  if (source_file_ == file) return;
  const auto f = static_cast<size_t>(file);
  source_file_ = unit_ = -1;
  batch_.reset();
  stream_.reset();
  source_ = opener_(files_[f]);
  selected_.clear();
  indices_.clear();
  for (const ReaderWant& want : wants_) {
    indices_.push_back(find(want.name, f));
    selected_.emplace_back(want, *file_columns_[f][static_cast<size_t>(indices_.back())].type, files_[f]);
  }
  const std::vector<int> wanted = indices_;
  std::sort(indices_.begin(), indices_.end());
  indices_.erase(std::unique(indices_.begin(), indices_.end()), indices_.end());
  children_.clear();
  for (const int index : wanted)
    children_.push_back(
        static_cast<size_t>(std::lower_bound(indices_.begin(), indices_.end(), index) - indices_.begin()));
  source_file_ = file;
}

// Opens the unit's batches, unless they are open and the block is still to come.
void ColumnarReader::start_unit(const Place& place) {
  if (unit_ == place.unit && next_row_ <= place.first) return;
  unit_ = -1;
  batch_.reset();
  stream_.reset();
  source_->read(place.unit, indices_, place.batch, stream_.out());
  unit_ = place.unit;
  next_row_ = batch_first_ = batch_end_ = 0;
}

void ColumnarReader::take(const ReaderBlock& block, const Place& place) {
  start_unit(place);
  next_row_ = place.first;
  const int64_t end = place.first + block.rows;
  while (next_row_ < end) {
    while (batch_end_ <= next_row_) {
      next_batch(*stream_, batch_);
      batch_first_ = batch_end_;
      batch_end_ += batch_->length;
    }
    const int64_t rows = std::min(end, batch_end_) - next_row_;
    for (size_t i = 0; i < selected_.size(); ++i) {
      try {
        const ArrowArray& array = *batch_->children[children_[i]];
        selected_[i].append(array, next_row_ - batch_first_ + batch_->offset, rows);
      } catch (const WrongValue& e) {
        fail(TSR_INVALID_ARGUMENT, files_[static_cast<size_t>(block.file)], ", row ", block.first_row + e.row() + 1,
             ", column \"", wants_[i].name, "\": ", e.what());
      }
    }
    next_row_ += rows;
  }
}

std::span<const tsr_reader_values> ColumnarReader::read(int64_t block) {
  const ReaderBlock& b = blocks_[static_cast<size_t>(block)];
  const Place& place = places_[static_cast<size_t>(block)];
  start_file(b.file);
  for (ArrowColumn& column : selected_) column.start_block(b.rows);
  try {
    take(b, place);
  } catch (const BrokenStream& e) {
    damaged(b, place, e.what());
  } catch (...) {
    unit_ = -1;
    throw;
  }
  values_.clear();
  for (ArrowColumn& column : selected_) values_.push_back(column.values());
  return values_;
}

// Names the column: the first that cannot be read alone.
void ColumnarReader::damaged(const ReaderBlock& block, const Place& place, const std::string& why) {
  unit_ = -1;
  batch_.reset();
  std::string column;
  for (size_t i = 0; column.empty() && indices_.size() > 1 && i < wants_.size(); ++i) {
    if (!readable(block, place, indices_[children_[i]])) column = wants_[i].name;
  }
  if (column.empty() && !wants_.empty()) column = wants_.front().name;
  fail(TSR_DATA_LOSS, files_[static_cast<size_t>(block.file)], " is damaged behind row ", block.first_row,
       ", column \"", column, "\": ", why);
}

bool ColumnarReader::readable(const ReaderBlock& block, const Place& place, int column) {
  try {
    ArrowOwner<ArrowArrayStream> stream;
    source_->read(place.unit, std::span(&column, 1), place.batch, stream.out());
    ArrowOwner<ArrowArray> batch;
    for (int64_t end = 0; end < place.first + block.rows; end += batch->length) next_batch(*stream, batch);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace tessera_readers
