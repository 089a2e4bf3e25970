// The reader histories: makes histories of users from events that another reader reads. A history only has events
// before its own event.
//
// An event's history has the earlier events of its user, in order of time. Events of the same time are in the order of
// the files. If the files are in order of time, the reader keeps only events that later histories may need, and reads
// blocks one after the other. Otherwise it sorts, and keeps the histories' columns of all events in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "history/arriving.h"
#include "history/column.h"
#include "history/kept_lists.h"
#include "history/log.h"
#include "history/options.h"
#include "history/survey.h"
#include "inner_reader.h"
#include "tessera/sdk/draft/reader_paths.h"

namespace tessera_readers {

class HistoryReader : public tessera::sdk::ArrivingReader {
 public:
  explicit HistoryReader(const tessera::sdk::Setup& setup);
  const void* extension(std::string_view id) const {
    if (const void* kept = histories_extension<HistoryReader>(id)) return kept;
    if (arriving_ == nullptr) return tessera::sdk::paths_extension<HistoryReader>(id);
    const void* skips = arriving_->skips() ? tessera::sdk::skips_extension<HistoryReader>(id) : nullptr;
    return skips != nullptr ? skips : tessera::sdk::arriving_extension<HistoryReader>(id);
  }
  KeptLists& kept_lists() { return kept_; }
  // Returns the form of the files' times as an option for later data. Empty: the form was given, or no files are open.
  const char* settled() const;
  const char* describe(const std::string& path);

  void open(std::string_view path, int64_t block_bytes) override;
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override {
    return arriving_ ? arriving_->columns() : columns_;
  }
  const std::vector<tessera::sdk::ReaderBlock>& blocks() const override { return blocks_; }
  void select(std::span<const tessera::sdk::ReaderWant> wants) override;
  std::span<const tsr_reader_values> read(int64_t block) override;

  // The next functions are for rows that arrive over time.
  void follow(std::string_view path, std::string_view position) override {
    arriving_->follow(std::string(path), position);
  }
  tessera::sdk::Arrived next(int64_t most, double wait_s) override { return arriving_->next(most, wait_s); }
  std::string position() const override { return arriving_->position(); }
  void skip(int64_t row, const char* why) { arriving_->skip(row, why); }

 private:
  // Says what a column of this reader is made from.
  struct Source {
    enum class Kind { kEvent, kHistory, kNext, kSeen, kUser, kLabel };
    Kind kind = Kind::kEvent;
    std::string column;                   // name of the column in the files
    uint64_t pool = HistoryLog::kNoPool;  // events of this pool; kNoPool: of all pools
  };
  // A selected column.
  struct Output {
    Source source;
    int32_t type;
    size_t from = 0;  // for kEvent the index of the wanted column, for a history the index of the cell
    HistoryColumn values;
  };
  // The samples of a block: a block of events, or a range of samples_.
  struct Origin {
    HistoryPart part;
    size_t first, end;
  };
  // A sample if samples = "users": its user, and the number of events before the one to predict.
  struct UserSample {
    uint32_t user;
    int64_t last;
    bool seen;  // the column `seen` has events
  };

  void check_columns() const;
  void list_columns();
  void list_column(Source::Kind kind, const std::string& name, uint64_t pool = HistoryLog::kNoPool);
  void list_event_blocks();
  int64_t last_of(uint32_t user, HistoryPart part) const;
  void list_user_blocks(int64_t block_bytes);
  void add_block(tessera::sdk::ReaderBlock block, Origin origin);
  size_t want(const tessera::sdk::ReaderWant& wanted);
  size_t cell_for(const std::string& column, int32_t type);
  void check_wanted(const tessera::sdk::ReaderWant& wanted, const Source& source) const;

  void load_log();
  uint64_t cells_of(const std::vector<tsr_reader_values>& values, size_t block, int64_t row);
  size_t user_at(const std::vector<tsr_reader_values>& values, size_t block, int64_t row);
  void read_in_order(size_t block, HistoryPart part);
  void pass_block(size_t block, const std::vector<tsr_reader_values>& values, const HistoryPart* part);
  void read_sorted(size_t block, HistoryPart part);
  void read_users(const Origin& origin);
  void lend_outputs(const std::vector<tsr_reader_values>& values);
  void add_user(Output& out, std::string_view name) const;
  void add_one(Output& out);
  void add_user_sample(const UserSample& sample);
  void add_events(Output& out, size_t user, int64_t begin, int64_t end) const;
  void add_sample(const std::vector<tsr_reader_values>& values, int64_t row, size_t user, int64_t end);
  void start_outputs(const std::vector<tsr_reader_values>& values);

  tessera::sdk::Host host_;
  HistoryOptions options_;
  KeptLists kept_;
  InnerReader inner_;
  std::unique_ptr<ArrivingHistories> arriving_;  // NULL: the inner reader reads files
  std::string described_;
  std::vector<tessera::sdk::ReaderColumn> inner_columns_;
  EventFiles events_;
  std::unique_ptr<HistorySurvey> survey_;
  std::vector<std::string> files_;
  std::vector<tessera::sdk::ReaderColumn> columns_;
  std::vector<Source> sources_;  // by index in columns_
  std::vector<tessera::sdk::ReaderBlock> blocks_;
  std::vector<Origin> origins_;  // by block
  std::vector<UserSample> samples_;

  std::vector<tessera::sdk::ReaderWant> wants_;  // columns that the inner reader reads
  std::vector<size_t> cells_;                    // indices in wants_ of the columns that are cells of the log
  size_t user_want_ = 0, time_want_ = 0, by_want_ = 0, item_want_ = 0;
  std::vector<Output> outputs_;
  std::vector<tsr_reader_values> values_;
  TextNumbers texts_;  // numbers of the cells' texts
  TextWord word_;
  HistoryLog log_;
  bool loaded_ = false;              // the log has all events
  size_t next_ = 0;                  // if events are read in order: the block after the last one in the log
  std::vector<int64_t> log_counts_;  // by user: number of events added to the log so far
  std::vector<uint64_t> event_;      // the cells of an event
};

}  // namespace tessera_readers
