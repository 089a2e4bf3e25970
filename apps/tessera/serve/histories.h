// Histories at serving: those of users whose events the server keeps, and those of requests that bring events.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "data/reader_component.h"
#include "serve/event_check.h"
#include "serve/history_maker.h"
#include "serve/log.h"
#include "tessera/runtime.h"

namespace tessera::serve {

struct HistoriesOptions {
  std::string path;    // of files with events, or of a source of the reader; empty: no histories are kept
  std::string reader;  // of these events; empty: the one that read the training data's
  int64_t most_mib = 256;
  static constexpr const char* kNoEvents = "-";  // as `path`: there are no events at the start
};

// Users and their events. All members except the constructor are [any-thread].
class KeptHistories {
 public:
  // Reads the events that there are. If more will arrive, a thread goes on reading them. `columns` are the model's.
  // kInvalidArgument: the reader of its data makes no histories, or an event is bad.
  KeptHistories(const Runtime& runtime, const HistoriesOptions& options, const ModelDescription& model,
                std::shared_ptr<const ColumnEncoding> columns, Log& log);
  ~KeptHistories();
  KeptHistories(const KeptHistories&) = delete;
  KeptHistories& operator=(const KeptHistories&) = delete;

  const std::string& reader() const { return reader_; }
  bool keeps(const std::string& list) const { return maker_->keeps(list); }
  HistoryMaker::Taken take(std::string_view user);
  // Adds the events of a request, {"events": [{...}]}, and returns their number. kInvalidArgument: one sentence that
  // says which event is bad; those before it are added.
  int64_t add_json(std::string_view body);

  struct Counts {
    int64_t users, bytes, forgotten, events, refused, unknown_users;
  };
  Counts counts();

 private:
  void read_files(const Runtime& runtime, const std::string& reader, const std::string& path);
  void follow(const Runtime& runtime, const std::string& reader, const std::string& path);
  void catch_up();
  int64_t take_arrived(double wait_s);
  void work();
  HistoryMaker::Added add(int64_t rows, std::span<const tsr_reader_values> values);

  const std::string reader_;
  Log& log_;
  std::unique_ptr<HistoryMaker> maker_;
  std::unique_ptr<EventCheck> check_;
  std::atomic<int64_t> events_{0}, refused_{0}, unknown_users_{0};

  ComponentPtr source_;  // of events that arrive; null: none do
  bool ended_ = false;   // no more will arrive
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

// Histories for the rows of a request; null members: there are none.
struct RowHistories {
  HistoryMaker* maker = nullptr;  // for events that the request brings
  KeptHistories* kept = nullptr;
};

// All members except keep() are [any-thread].
class Histories {
 public:
  explicit Histories(const Runtime& runtime) : runtime_(runtime) {}
  // Keeps histories from here on. Call it before the first request.
  void keep(std::unique_ptr<KeptHistories> kept) { kept_ = std::move(kept); }
  KeptHistories* kept() const { return kept_.get(); }
  // For a model whose data this reader read. kInvalidArgument: histories are kept for another reader.
  RowHistories of(const std::string& reader);

 private:
  const Runtime& runtime_;
  std::unique_ptr<KeptHistories> kept_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<HistoryMaker>> makers_;  // by reader; null: it makes no histories
};

}  // namespace tessera::serve
