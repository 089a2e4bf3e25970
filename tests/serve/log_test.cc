// Tests log lines and the metrics' text.
#include "serve/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "serve/metrics.h"
#include "serve/request_handler.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Reads what a log writes into a pipe.
class Pipe {
 public:
  Pipe() {
    if (pipe(ends_) != 0) std::abort();
  }
  ~Pipe() {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  // Reads the available bytes.
  void take() {
    int bytes = 0;
    if (ioctl(ends_[0], FIONREAD, &bytes) != 0) std::abort();
    std::string more(static_cast<size_t>(bytes), '\0');
    if (read(ends_[0], more.data(), more.size()) != bytes) std::abort();
    text_ += more;
  }
  std::vector<json> lines() {
    close(ends_[1]);
    ends_[1] = -1;
    char buffer[4096];
    for (ssize_t n; (n = read(ends_[0], buffer, sizeof(buffer))) > 0;) text_.append(buffer, static_cast<size_t>(n));
    std::vector<json> out;
    std::istringstream in(text_);
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    return out;
  }

 private:
  int ends_[2] = {-1, -1};
  std::string text_;
};

TEST(Log, LinesAreJsonObjects) {
  Pipe pipe;
  Log log(Level::kInfo, pipe.in());
  log.write(Level::kInfo, "listening", {{"port", int64_t{8000}}, {"text", "a \"b\"\n\xff"}, {"seconds", 0.25}});
  log.write(Level::kDebug, "left out");
  log.write(Level::kError, "bad");
  const std::vector<json> lines = pipe.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["event"], "listening");
  EXPECT_EQ(lines[0]["level"], "info");
  EXPECT_EQ(lines[0]["port"], 8000);
  EXPECT_EQ(lines[0]["text"], "a \"b\"\n\xEF\xBF\xBD");
  EXPECT_EQ(lines[0]["seconds"], 0.25);
  EXPECT_THAT(lines[0]["time"].get<std::string>(), ::testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
  EXPECT_EQ(lines[1]["level"], "error");
}

// Lines about answers and refusals name the model, if there is one.
TEST(Log, LinesNameTheModel) {
  Pipe pipe;
  Log log(Level::kDebug, pipe.in());
  Metrics metrics;
  HttpResponse good = HttpResponse::json("{}"), bad = HttpResponse::failed(400, Failure::kBadRequest, "no");
  for (const char* model : {"films", ""}) {
    good.model = bad.model = model;
    count(Clock::now(), good, metrics, log);
    count(Clock::now(), bad, metrics, log);
  }
  const std::vector<json> lines = pipe.lines();
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["event"], i % 2 == 0 ? "answered" : "bad_request");
    EXPECT_EQ(lines[i].value("model", "none"), i < 2 ? "films" : "none");
    EXPECT_EQ(lines[i]["status"], i % 2 == 0 ? 200 : 400);
  }
}

TEST(Log, AFloodIsCutAndCounted) {
  Pipe pipe;
  Log log(Level::kInfo, pipe.in());
  for (int i = 0; i < 200; ++i) log.write_some(Level::kInfo, "bad_request", {{"i", int64_t{i}}});
  sleep(1);
  log.write_some(Level::kInfo, "bad_request");
  log.write_some(Level::kInfo, "deadline");
  const std::vector<json> lines = pipe.lines();
  ASSERT_GE(lines.size(), static_cast<size_t>(Log::kPerSecond + 2));
  EXPECT_LE(lines.size(), static_cast<size_t>(4 * Log::kPerSecond));
  int64_t left_out = 0, written = 0;
  for (const json& line : lines) {
    if (line["event"] != "bad_request") continue;
    ++written;
    left_out += line.value("left_out", int64_t{0});
  }
  EXPECT_EQ(written + left_out, 201);
  EXPECT_EQ(lines.back()["event"], "deadline");
}

// Standard error is a pipe to a program that has stopped: the server still serves.
TEST(Log, WaitsForNoReader) {
  Pipe pipe;
  Log log(Level::kDebug, pipe.in());
  const std::string text(200, 'x');
  for (int i = 0; i < 10000; ++i) log.write(Level::kDebug, "request", {{"text", text}});
  pipe.take();
  log.write(Level::kInfo, "awake");
  const std::vector<json> lines = pipe.lines();
  ASSERT_GT(lines.size(), 1u);
  EXPECT_EQ(lines.back()["event"], "awake");
  EXPECT_EQ(lines.back()["lost"].get<size_t>() + lines.size() - 1, 10000u);
}

TEST(Metrics, TextIsWhatPrometheusReads) {
  Metrics metrics;
  metrics.response(200);
  metrics.response(200);
  metrics.response(503);
  metrics.failure(Failure::kQueueFull);
  metrics.answered(0.0015);
  metrics.answered(100);
  metrics.batch(3, 5, 0.0001);
  metrics.reload(true);
  const std::string text = metrics.text({.queue = 4, .connections = 2, .models = {{"a\"b\\c\n", "v1", {{"film", 7}}}}});
  for (const char* line : {
           "tessera_responses_total{code=\"200\"} 2\n",
           "tessera_responses_total{code=\"503\"} 1\n",
           "tessera_errors_total{kind=\"queue_full\"} 1\n",
           "tessera_errors_total{kind=\"bad_request\"} 0\n",
           "tessera_request_seconds_bucket{le=\"0.001\"} 0\n",
           "tessera_request_seconds_bucket{le=\"0.002\"} 1\n",
           "tessera_request_seconds_bucket{le=\"10\"} 1\n",
           "tessera_request_seconds_bucket{le=\"+Inf\"} 2\n",
           "tessera_request_seconds_sum 100.0015\n",
           "tessera_request_seconds_count 2\n",
           "tessera_batch_samples_bucket{le=\"4\"} 0\n",
           "tessera_batch_samples_bucket{le=\"8\"} 1\n",
           "tessera_batch_requests_bucket{le=\"4\"} 1\n",
           "tessera_queue_requests 4\n",
           "tessera_connections 2\n",
           "tessera_bad_ids_total{model=\"a\\\"b\\\\c\\n\",version=\"v1\",table=\"film\"} 7\n",
           "tessera_model_info{model=\"a\\\"b\\\\c\\n\",version=\"v1\"} 1\n",
           "tessera_reloads_total{result=\"done\"} 1\n",
           "# TYPE tessera_request_seconds histogram\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes "));
}

}  // namespace
}  // namespace tessera::serve
