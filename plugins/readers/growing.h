// The reader growing: files that arrive in a directory, each read once, whole, in the order of their names.
#pragma once

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "inner_reader.h"
#include "tessera/sdk/draft/arriving.h"

namespace tessera_readers {

// The content of a directory, which is read again only if it may have changed.
class GrowingDirectory {
 public:
  // `pattern` is one of fnmatch(3). `end` is the name of a file that announces that no other will come; empty: none.
  GrowingDirectory(std::string pattern, std::string end) : pattern_(std::move(pattern)), end_(std::move(end)) {}

  // Names up to `taken` had been taken when the directory was looked at, at `since` (seconds of the Unix epoch; 0:
  // unknown). Of these names, files that have come or changed since then are late.
  void begin(const std::string& path, const std::string& taken, double since);
  // The next file's name, which then counts as taken; empty if there is none yet.
  std::string next();
  double looked() const;  // time of the last look, in seconds of the Unix epoch
  bool ended() const;     // the end file exists; checked before next(), which then knows all files
  // Names that arrived after later ones were taken, since the last call; they are skipped.
  std::vector<std::string> late() { return std::exchange(late_, {}); }

 private:
  bool is_file(const std::filesystem::directory_entry& entry) const;
  void look();

  std::string pattern_, end_, path_, taken_;
  std::filesystem::file_time_type changed_{}, looked_{};
  std::set<std::string> waiting_, known_;
  std::vector<std::string> late_;
};

class Growing : public tessera::sdk::ArrivingReader {
 public:
  explicit Growing(const tessera::sdk::Setup& setup);
  const void* extension(std::string_view id) const { return tessera::sdk::arriving_extension<Growing>(id); }

  void follow(std::string_view path, std::string_view position) override;
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override { return columns_; }
  void select(std::span<const tessera::sdk::ReaderWant> wants) override;
  tessera::sdk::Arrived next(int64_t most, double wait_s) override;
  std::string position() const override;

 private:
  void open_file(const std::string& name, int64_t rows_taken);
  bool advance();
  tessera::sdk::Arrived taken(int64_t most);
  void tell_late();
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  tessera::sdk::Host host_;
  InnerReader inner_;
  std::string time_;  // column of event times; empty: none
  double idle_s_;     // time without rows after which no more will come; 0: unlimited
  GrowingDirectory directory_;
  std::string path_;
  std::vector<tessera::sdk::ReaderColumn> columns_;
  std::vector<tessera::sdk::ReaderWant> wants_;  // followed by time_ if it is not among them
  size_t given_ = 0;                             // the first of wants_, those that were selected
  bool selected_ = false;
  std::chrono::steady_clock::time_point last_row_;

  // The file being read.
  std::string name_, where_;
  std::vector<int64_t> blocks_;            // rows per block
  int64_t rows_ = 0, row_ = 0;             // rows of the file; rows taken of it
  size_t block_ = 0;                       // block that row_ is in
  int64_t in_block_ = 0;                   // rows of that block that were taken
  bool read_ = false;                      // values_ has that block's values
  std::vector<tsr_reader_values> values_;  // the block's values
  std::vector<tsr_reader_values> handed_;  // values of the rows that were not taken yet
  std::vector<double> times_;
};

}  // namespace tessera_readers
