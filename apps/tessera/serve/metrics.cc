#include "serve/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace tessera::serve {
namespace {

constexpr double kSeconds[] = {5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
constexpr double kCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

std::string number(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

// A label's value: backslash, quote and newline are escaped.
std::string label(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <class Number>
void line(std::string& out, const char* name, const std::string& labels, Number value) {
  out += name + labels + " " + std::to_string(value) + "\n";
}

uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

const char* to_string(Failure failure) {
  constexpr const char* kNames[kFailures] = {"bad_request", "bad_http",  "not_found",  "too_large",
                                             "slow_sender", "forbidden", "queue_full", "deadline",
                                             "unavailable", "busy",      "internal"};
  return kNames[static_cast<size_t>(failure)];
}

void Histogram::add(double value) {
  const size_t at = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[at].fetch_add(1, std::memory_order_relaxed);
  millionths_.fetch_add(static_cast<uint64_t>(std::max(0.0, value) * 1e6), std::memory_order_relaxed);
}

void Histogram::print(std::string& out, const char* name, const char* help) const {
  head(out, name, "histogram", help);
  const std::string base = name;
  uint64_t sum = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    sum += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < bounds_.size() ? number(bounds_[i]) : "+Inf";
    line(out, (base + "_bucket").c_str(), "{le=\"" + bound + "\"}", sum);
  }
  out += base + "_sum " + number(static_cast<double>(millionths_.load(std::memory_order_relaxed)) / 1e6) + "\n";
  line(out, (base + "_count").c_str(), "", sum);
}

Metrics::Metrics() : latency_(kSeconds), prediction_(kSeconds), batch_requests_(kCounts), batch_samples_(kCounts) {}

void Metrics::response(int status) {
  const int at = std::clamp(status - kLeastStatus, 0, kStatuses - 1);
  responses_[static_cast<size_t>(at)].fetch_add(1, std::memory_order_relaxed);
}

void Metrics::batch(size_t requests, int64_t samples, double seconds) {
  batch_requests_.add(static_cast<double>(requests));
  batch_samples_.add(static_cast<double>(samples));
  prediction_.add(seconds);
}

std::string Metrics::text(const Gauges& gauges) const {
  std::string out;
  head(out, "tessera_responses_total", "counter", "HTTP responses by status code.");
  for (int i = 0; i < kStatuses; ++i) {
    const uint64_t n = responses_[static_cast<size_t>(i)].load(std::memory_order_relaxed);
    if (n > 0) line(out, "tessera_responses_total", "{code=\"" + std::to_string(kLeastStatus + i) + "\"}", n);
  }
  head(out, "tessera_errors_total", "counter", "Requests without an answer, by reason.");
  for (int i = 0; i < kFailures; ++i) {
    line(out, "tessera_errors_total", std::string("{kind=\"") + to_string(static_cast<Failure>(i)) + "\"}",
         failures_[static_cast<size_t>(i)].load(std::memory_order_relaxed));
  }
  latency_.print(out, "tessera_request_seconds", "Inference requests: from the last byte received to the answer.");
  prediction_.print(out, "tessera_prediction_seconds", "Time of one batch in the model.");
  batch_requests_.print(out, "tessera_batch_requests", "Requests of one batch.");
  batch_samples_.print(out, "tessera_batch_samples", "Samples of one batch.");
  head(out, "tessera_queue_requests", "gauge", "Requests that wait for a batch.");
  line(out, "tessera_queue_requests", "", gauges.queue);
  head(out, "tessera_connections", "gauge", "Open connections.");
  line(out, "tessera_connections", "", gauges.connections);
  head(out, "tessera_bad_ids_total", "counter", "Ids out of range, by table; starts anew with each loaded model.");
  for (const auto& [table, n] : gauges.bad_ids) line(out, "tessera_bad_ids_total", "{table=" + label(table) + "}", n);
  head(out, "tessera_model_info", "gauge", "1 for the model that is served.");
  if (!gauges.version.empty()) {
    line(out, "tessera_model_info", "{model=" + label(gauges.model) + ",version=" + label(gauges.version) + "}", 1);
  }
  head(out, "tessera_reloads_total", "counter", "Loads of a model after the first.");
  line(out, "tessera_reloads_total", "{result=\"done\"}", reloads_.load(std::memory_order_relaxed));
  line(out, "tessera_reloads_total", "{result=\"failed\"}", failed_reloads_.load(std::memory_order_relaxed));
  head(out, "process_resident_memory_bytes", "gauge", "Resident memory.");
  line(out, "process_resident_memory_bytes", "", resident_bytes());
  return out;
}

}  // namespace tessera::serve
