#include "serve/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "serve/json_text.h"

namespace tessera::serve {
namespace {

constexpr const char* kLevels[] = {"error", "warning", "info", "debug"};

std::string now_text() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.", &parts);
  std::string out(text, n);
  const std::string millis = std::to_string(now.tv_nsec / 1000000);
  return out + std::string(3 - millis.size(), '0') + millis + "Z";
}

// True if a write of up to PIPE_BUF bytes would return at once, now or within this many milliseconds.
bool takes_more(int fd, int milliseconds) {
  pollfd polled{fd, POLLOUT, 0};
  return ::poll(&polled, 1, milliseconds) == 1;
}

constexpr int kRestOfALine = 100;  // milliseconds

struct Append {
  std::string& out;
  void operator()(std::string_view text) const { out += json_string(text); }
  void operator()(int64_t number) const { out += std::to_string(number); }
  void operator()(double number) const { append_number(out, static_cast<float>(number)); }
};

}  // namespace

void Log::print(Level level, std::string_view event, std::initializer_list<Field> fields, int64_t left_out) {
  std::string line = "{\"time\":\"" + now_text() + "\",\"level\":\"" + kLevels[static_cast<int>(level)] +
                     "\",\"event\":" + json_string(event);
  for (const Field& field : fields) {
    line += "," + json_string(field.key) + ":";
    std::visit(Append{line}, field.value);
  }
  if (left_out > 0) line += ",\"left_out\":" + std::to_string(left_out);
  const std::lock_guard lock(writing_);
  if (!takes_more(fd_, 0)) {
    ++lost_;
    return;
  }
  if (lost_ > 0) line += ",\"lost\":" + std::to_string(std::exchange(lost_, 0));
  line += "}\n";
  if (std::exchange(torn_, false)) line.insert(0, "\n");
  std::string_view rest = line;
  while (!rest.empty()) {
    torn_ = rest.size() < line.size() && !takes_more(fd_, kRestOfALine);
    if (torn_) return;
    const ssize_t n = ::write(fd_, rest.data(), std::min<size_t>(rest.size(), PIPE_BUF));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a missing reader is no reason to stop serving
    rest.remove_prefix(static_cast<size_t>(n));
  }
}

void Log::write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (on(level)) print(level, event, fields, 0);
}

void Log::write_some(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (!on(level)) return;
  const int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  int64_t left_out = 0;
  {
    const std::lock_guard lock(mutex_);
    auto flow = std::find_if(flows_.begin(), flows_.end() - 1,
                             [&](const Flow& f) { return f.event.empty() || f.event == event; });
    if (flow->event.empty()) flow->event = event;
    if (flow->second != second) {
      flow->second = second;
      flow->lines = 0;
    }
    if (flow->lines == kPerSecond) {
      ++flow->left_out;
      return;
    }
    ++flow->lines;
    left_out = std::exchange(flow->left_out, 0);
  }
  print(level, event, fields, left_out);
}

}  // namespace tessera::serve
