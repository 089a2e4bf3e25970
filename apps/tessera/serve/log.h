// Structured log lines: one JSON object each, on a file descriptor.
//   {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"listening","port":8000}
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>

namespace tessera::serve {

enum class Level { kError, kWarning, kInfo, kDebug };

struct Field {
  const char* key;
  std::variant<std::string_view, int64_t, double> value;
};

class Log {
 public:
  // Lines above level `most` are left out. `fd` is not closed; -1 means no lines at all.
  explicit Log(Level most, int fd = 2) : most_(most), fd_(fd) {}

  // [any-thread] Never waits for a reader. While the descriptor accepts nothing, lines are lost; the next line that is
  // written reports their number ("lost"). A line of up to PIPE_BUF bytes is one write().
  void write(Level level, std::string_view event, std::initializer_list<Field> fields = {});
  // For events that clients cause: writes at most kPerSecond lines per event and second, so that a flood of bad
  // requests does not become a flood of lines. The next second's first line reports how many were left out
  // ("left_out").
  void write_some(Level level, std::string_view event, std::initializer_list<Field> fields = {});
  bool on(Level level) const { return fd_ >= 0 && level <= most_; }

  static constexpr int kPerSecond = 10;

 private:
  struct Flow {
    std::string event;
    int64_t second = 0;
    int lines = 0;
    int64_t left_out = 0;
  };
  void print(Level level, std::string_view event, std::initializer_list<Field> fields, int64_t left_out);

  const Level most_;
  const int fd_;
  std::mutex writing_;  // guards these two and the order of lines
  int64_t lost_ = 0;
  bool torn_ = false;  // the last line was written only in part
  std::mutex mutex_;
  std::array<Flow, 8> flows_;  // only a few events are limited; those beyond the eighth share the last entry
};

}  // namespace tessera::serve
