// The reader growing: files that come to a directory, each taken once, whole, in the order of their names.
#pragma once

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "inner_reader.h"
#include "tessera/sdk/draft/arriving.h"

namespace tessera_readers {

// What is in a directory, looked at again only where it may have changed.
class GrowingDirectory {
 public:
  // `pattern`: of fnmatch(3); `end`: name of the file that says that no other will come; empty: none.
  GrowingDirectory(std::string pattern, std::string end) : pattern_(std::move(pattern)), end_(std::move(end)) {}

  // Names up to `taken` have been taken when it was looked at `since` (seconds of the Unix epoch; 0: not known): of
  // those that are there now what has come or changed since is late.
  void begin(const std::string& path, const std::string& taken, double since);
  // The next file's name, which counts as taken then; empty: there is none yet.
  std::string next();
  double looked() const;  // when, in seconds of the Unix epoch
  bool ended() const;     // the end file is there; asked before next(), which then knows all files
  // Names that came behind ones already taken, since the last call: they are passed over.
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
  double idle_s_;     // without rows, after which no more will come; 0: never
  GrowingDirectory directory_;
  std::string path_;
  std::vector<tessera::sdk::ReaderColumn> columns_;
  std::vector<tessera::sdk::ReaderWant> wants_;  // with that of time_ behind them where it is none of them
  size_t given_ = 0;                             // of wants_, that were selected
  bool selected_ = false;
  std::chrono::steady_clock::time_point last_row_;

  // The file that is read.
  std::string name_, where_;
  std::vector<int64_t> blocks_;            // rows of each
  int64_t rows_ = 0, row_ = 0;             // of the file; taken of it
  size_t block_ = 0;                       // that row_ is in
  int64_t in_block_ = 0;                   // rows of it that are taken
  bool read_ = false;                      // values_ are of that block
  std::vector<tsr_reader_values> values_;  // of the block
  std::vector<tsr_reader_values> handed_;  // what follows of it
  std::vector<double> times_;
};

}  // namespace tessera_readers
