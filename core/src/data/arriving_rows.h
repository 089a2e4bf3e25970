// Endless arriving rows from a reader plugin with tessera.reader.arriving (abi/draft/arriving.h). One rank reads them
// in order. A position, stored in checkpoints, says where to continue.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/columns.h"
#include "data/examples.h"
#include "tessera/abi/draft/arriving.h"
#include "tessera/data.h"
#include "tessera/runtime.h"

namespace tessera::data {

class ArrivingRows {
 public:
  // True if data.reader names such a component. TSR_READER_PIPE: one that reads rows from a pipe as they come.
  static bool reads(const Runtime& runtime, const std::string& reader, const char* draft = TSR_READER_ARRIVING);
  // The component that reads files the way data.reader reads arriving rows: its inner one. kInvalidArgument: none.
  static std::string file_reader(const Runtime& runtime, const std::string& reader);

  // Reads nothing yet. `encoding` is the same as for read_dataset(). Rows of a pipe may lack labels. kInvalidArgument:
  // [data] has keys without effect on such rows, or a column must learn from all training rows, which have no end.
  ArrivingRows(const Runtime& runtime, const Config& config, const std::string& encoding,
               const char* draft = TSR_READER_ARRIVING);

  Dataset dataset() const;  // names and columns, no samples; for a pipe call follow() first
  Examples form() const;    // no samples
  // After this an id without a row is an error that names place, row and column.
  void require_known_ids() { known_ids_ = true; }

  // Opens the input at a position() of an earlier run; empty: at the beginning. Call it once.
  void follow(const std::string& position);
  struct Taken {
    int64_t rows = 0;
    bool last = false;  // no more rows come after these
  };
  // Adds at most `most` rows to `out`, and their event times to `times`, NaN if a row has none. Waits at most about
  // `wait_s` seconds for the first row. kInvalidArgument, kNotFound: a row does not fit the columns. A component with
  // tessera.reader.skips leaves such rows out instead.
  Taken take(int64_t most, double wait_s, Examples& out, std::vector<double>& times);
  std::string position() const;  // after all rows taken, as JSON

 private:
  const tsr_reader& reader() const { return part_->api<tsr_reader>(); }
  void add(const tsr_reader_arrived& got, int64_t first, int64_t rows, Examples& out, std::vector<double>& times);

  ComponentPtr part_;
  const tsr_reader_arriving* api_;
  const tsr_reader_skips* skips_;  // null: bad rows are errors
  bool pipe_;
  std::string path_;
  Columns columns_;
  bool known_ids_ = false;
  std::vector<tsr_reader_values> values_;
};

// Serializes samples for another rank, which has the same columns.
std::string pack(const Examples& examples);
// Appends them to `out`. kInternal: the bytes are not from pack().
void unpack(std::string_view bytes, Examples& out);

}  // namespace tessera::data
