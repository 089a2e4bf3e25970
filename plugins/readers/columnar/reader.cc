#include "columnar/reader.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tessera/sdk/other_columns.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ReaderBlock;
using tessera::sdk::ReaderColumn;
using tessera::sdk::ReaderWant;

void next_batch(ArrowArrayStream& stream, ArrowOwner<ArrowArray>& batch) {
  if (stream.get_next(&stream, batch.out()) != 0) {
    const char* why = stream.get_last_error(&stream);
    throw BrokenStream(why != nullptr ? why : "no reason is given");
  }
  if (!batch) throw BrokenStream("it has fewer rows than it says");
}

int32_t type_of(const ArrowType& type) {
  using Storage = ArrowValues::Storage;
  const Storage storage = type.values.storage;
  if (type.values.is_text() || storage == Storage::kNull) return TSR_READER_TEXT;
  const bool real = storage == Storage::kFloat64 || storage == Storage::kDecimal || type.values.is_duration();
  if (real) return TSR_READER_FLOAT64;
  return storage == Storage::kFloat16 || storage == Storage::kFloat32 ? TSR_READER_FLOAT32 : TSR_READER_INT64;
}

// The type that can hold the values of both.
int32_t wider(int32_t a, int32_t b) {
  if (a == b || a == TSR_READER_TEXT || b == TSR_READER_TEXT) return a == b ? a : TSR_READER_TEXT;
  return TSR_READER_FLOAT64;
}

}  // namespace

void ColumnarReader::open(std::string_view path, int64_t block_bytes) {
  files_ = is_url(path) ? from_.list(std::string(path), endings_) : files_of(path, endings_, KeyFolders::kRead);
  blocks_.clear();
  file_columns_.clear();
  columns_.clear();
  places_.clear();
  wants_.clear();
  source_file_ = unit_ = -1;
  for (size_t i = 0; i < files_.size(); ++i) scan(path, static_cast<int64_t>(i), std::max<int64_t>(block_bytes, 1));
  list_columns();
}

// Lists the columns of the first file, each with a type that can hold its values in all files.
void ColumnarReader::list_columns() {
  for (const FileColumn& c : file_columns_.front()) {
    ReaderColumn listed{c.name, TSR_READER_TEXT, false, false, c.about};
    bool typed = false;
    for (const std::vector<FileColumn>& file : file_columns_) {
      const auto same = std::find_if(file.begin(), file.end(), [&](const FileColumn& o) { return o.name == c.name; });
      if (same == file.end() || listed.type == TSR_READER_UNREADABLE) continue;
      if (same->type && same->type->is_null()) continue;
      const bool list = same->type && same->type->list != ArrowType::List::kNone;
      const bool weighted = same->type && same->type->weight.has_value();
      const int32_t type = same->type ? type_of(*same->type) : TSR_READER_UNREADABLE;
      const bool first = !std::exchange(typed, true);
      if (first || type == TSR_READER_UNREADABLE) listed = {c.name, type, list, weighted, same->about};
      if (first) continue;
      if (type != TSR_READER_UNREADABLE) listed.type = wider(listed.type, type);
      listed.weighted = listed.weighted && weighted;
    }
    columns_.push_back(std::move(listed));
  }
  list_others();
}

// Lists the columns that the first file lacks and others have, without a type. They cannot be read.
void ColumnarReader::list_others() {
  std::unordered_set<std::string> known;
  for (const ReaderColumn& c : columns_) known.insert(c.name);
  for (const std::vector<FileColumn>& file : file_columns_) {
    for (const FileColumn& c : file) {
      if (known.insert(c.name).second) columns_.push_back({c.name, TSR_READER_UNREADABLE, false, false, ""});
    }
  }
}

// Divides a unit into blocks of about equally many rows.
void ColumnarReader::scan(std::string_view path, int64_t file, int64_t block_bytes) {
  const std::string& name = files_[static_cast<size_t>(file)];
  const std::unique_ptr<ArrowSource> source = from_.open(name);
  const ArrowSchema& schema = source->schema();
  std::vector<FileColumn>& columns = file_columns_.emplace_back();
  for (int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema& column = *schema.children[i];
    columns.push_back({column.name, ArrowType::of(column), arrow_type_name(column)});
  }
  for (auto& [key, value] : folder_keys(path, name)) {
    const bool own =
        std::any_of(columns.begin(), columns.end(), [&key = key](const FileColumn& c) { return c.name == key; });
    if (!own) columns.push_back({key, ArrowType{}, "the key of a folder", value, true});
  }
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

const ColumnarReader::FileColumn& ColumnarReader::find(const std::string& name, size_t file) const {
  std::vector<std::string> names;
  for (const FileColumn& c : file_columns_[file]) names.push_back(c.name);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    fail(TSR_NOT_FOUND, files_[file], " has no column \"", name, "\"", tessera::sdk::other_columns(name, names));
  if (std::find(found + 1, names.end(), name) != names.end())
    fail(TSR_INVALID_ARGUMENT, files_[file], " has two columns named \"", name, "\"");
  return file_columns_[file][static_cast<size_t>(found - names.begin())];
}

// Refuses times that are wanted as numbers if two files have them in different units.
void ColumnarReader::check_units(const ReaderWant& want) const {
  const FileColumn* first = nullptr;
  for (size_t file = 0, of_first = 0; want.type != TSR_READER_TEXT && file < files_.size(); ++file) {
    const FileColumn& column = find(want.name, file);
    if (column.key || !column.type->values.is_counted_time()) continue;
    if (first == nullptr) first = &column, of_first = file;
    const ArrowValues &one = first->type->values, &other = column.type->values;
    if (one.meaning == other.meaning && one.per_second == other.per_second) continue;
    fail(TSR_INVALID_ARGUMENT, files_[file], ": column \"", want.name, "\" is of Arrow type ", column.about,
         ", but in ", files_[of_first], " it is of type ", first->about,
         ", whose numbers differ: write them in one unit");
  }
}

// Refuses columns that a file lacks or cannot give as wanted.
void ColumnarReader::check(const ReaderWant& want) const {
  std::string wrong, fits;
  for (size_t file = 0; file < files_.size(); ++file) {
    const FileColumn& column = find(want.name, file);
    if (!column.type)
      fail(TSR_INVALID_ARGUMENT, files_[file], ": column \"", want.name, "\" is of Arrow type ", column.about,
           ", which cannot be read: write it as columns of numbers, texts, times or lists of them");
    if (column.key && want.list)
      fail(TSR_INVALID_ARGUMENT, files_[file], ": column \"", want.name,
           "\" is the key of a folder, but lists are wanted");
    const std::string why = misfit(want, *column.type);
    if (why.empty() && fits.empty()) fits = "; in " + files_[file] + " it is of type " + column.about;
    if (!why.empty() && wrong.empty())
      wrong = files_[file] + ", column \"" + want.name + "\" " + why + ": it is of Arrow type " + column.about;
  }
  if (!wrong.empty()) fail(TSR_INVALID_ARGUMENT, wrong, fits);
  check_units(want);
}

void ColumnarReader::select(std::span<const ReaderWant> wants) {
  for (const ReaderWant& want : wants) check(want);
  wants_.assign(wants.begin(), wants.end());
  source_file_ = unit_ = -1;
}

void ColumnarReader::start_file(int64_t file) {
  if (source_file_ == file) return;
  const auto f = static_cast<size_t>(file);
  source_file_ = unit_ = -1;
  batch_.reset();
  stream_.reset();
  source_ = from_.open(files_[f]);
  selected_.clear();
  indices_.clear();
  wanted_.clear();
  std::vector<int> all;
  for (const ReaderWant& want : wants_) {
    const FileColumn& column = find(want.name, f);
    wanted_.push_back(&column);
    all.push_back(static_cast<int>(&column - file_columns_[f].data()));
    if (!column.key) indices_.push_back(all.back());
    selected_.emplace_back(want, *column.type);
  }
  std::sort(indices_.begin(), indices_.end());
  indices_.erase(std::unique(indices_.begin(), indices_.end()), indices_.end());
  children_.clear();
  for (const int index : all)
    children_.push_back(
        static_cast<size_t>(std::lower_bound(indices_.begin(), indices_.end(), index) - indices_.begin()));
  source_file_ = file;
}

// Opens the unit's batches, unless they are open and have not yet passed the block.
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
  if (indices_.empty()) return append_batch(block, block.rows);
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
    append_batch(block, rows);
    next_row_ += rows;
  }
}

// Appends the next rows of the batch to all columns.
void ColumnarReader::append_batch(const ReaderBlock& block, int64_t rows) {
  for (size_t i = 0; i < selected_.size(); ++i) {
    try {
      if (wanted_[i]->key)
        selected_[i].append_same(wanted_[i]->value, rows);
      else
        selected_[i].append(*batch_->children[children_[i]], next_row_ - batch_first_ + batch_->offset, rows);
    } catch (const WrongValue& e) {
      fail(TSR_INVALID_ARGUMENT, files_[static_cast<size_t>(block.file)], ", row ", block.first_row + e.row() + 1,
           ", column \"", wants_[i].name, "\": ", e.what());
    }
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

// Finds the first column that cannot be read by itself, and names it.
void ColumnarReader::damaged(const ReaderBlock& block, const Place& place, const std::string& why) {
  unit_ = -1;
  batch_.reset();
  std::string column;
  for (size_t i = 0; column.empty() && indices_.size() > 1 && i < wants_.size(); ++i) {
    if (!wanted_[i]->key && !readable(block, place, indices_[children_[i]])) column = wants_[i].name;
  }
  for (size_t i = 0; column.empty() && i < wants_.size(); ++i) {
    if (!wanted_[i]->key) column = wants_[i].name;
  }
  fail(TSR_DATA_LOSS, files_[static_cast<size_t>(block.file)], " is damaged after row ", block.first_row, ", column \"",
       column, "\": ", why);
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
