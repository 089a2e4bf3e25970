#include "csv_pipe.h"

#include <utility>

namespace tessera_readers {

CsvPipe::CsvPipe(const std::string& path, CsvFormat format)
    : records_(path, format), rows_(records_.path(), format, header_of(records_, format)) {}

// Returns false if no row has come.
bool CsvPipe::take(double wait_s) {
  std::string_view record;
  do {
    if (!records_.wait(wait_s, row_)) return false;
    ended_ = !records_.next(record, row_);
    if (ended_) return false;
  } while (rows_.is_blank(record));
  rows_.parse(row_ + 1, record, records_.quoted());
  return true;
}

int64_t CsvPipe::next(int64_t most, double wait_s, std::vector<CsvColumn>& columns) {
  if (wrong_ != nullptr) std::rethrow_exception(std::exchange(wrong_, nullptr));
  for (CsvColumn& column : columns) column.start_block(most);
  int64_t rows = 0;
  try {
    for (; rows < most && take(rows > 0 ? 0 : wait_s); ++rows) ++row_;
  } catch (...) {
    if (rows == 0) throw;
    wrong_ = std::current_exception();
  }
  return rows;
}

}  // namespace tessera_readers
