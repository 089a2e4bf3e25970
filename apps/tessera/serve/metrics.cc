#include "serve/metrics.h"

#include <algorithm>

#include "serve/prometheus.h"

namespace tessera::serve {
namespace {

constexpr double kSeconds[] = {5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
constexpr double kCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

using prometheus::head;
using prometheus::label;
using prometheus::line;
using prometheus::number;

// The labels up to the closing brace.
std::string labels(const Gauges::Model& model) {
  return "{model=" + label(model.name) + ",version=" + label(model.version);
}

// Writes nothing if no model has a vocabulary.
void unknown_ids_text(std::string& out, const Gauges& gauges) {
  const auto each = [&](const char* name, const char* help, const auto& value) {
    bool any = false;
    for (const Gauges::Model& model : gauges.models) {
      for (const UnknownIds& ids : model.unknown_ids) {
        if (!any) head(out, name, "counter", help);
        any = true;
        line(out, name,
             (model.followed ? "{model=" + label(model.name) : labels(model)) + ",column=" + label(ids.column) + "}",
             static_cast<uint64_t>(value(ids)));
      }
    }
  };
  each("tessera_looked_up_ids_total", "Ids of columns with a vocabulary.",
       [](const UnknownIds& ids) { return ids.ids; });
  each("tessera_unknown_ids_total", "Looked-up ids that the vocabulary does not have.",
       [](const UnknownIds& ids) { return ids.unknown; });
}

// Writes nothing if no model is followed. The labels have no versions, so that each series continues over time.
void followed_text(std::string& out, const Gauges& gauges) {
  using Followed = Gauges::Model::Followed;
  const auto each = [&](const char* name, const char* type, const char* help, const auto& value) {
    bool any = false;
    for (const Gauges::Model& model : gauges.models) {
      if (!model.followed) continue;
      if (!any) head(out, name, type, help);
      any = true;
      line(out, name, "{model=" + label(model.name) + "}", value(*model.followed));
    }
  };
  each("tessera_followed_publication", "gauge", "Number of the publication that is served.",
       [](const Followed& f) { return static_cast<uint64_t>(f.number); });
  each("tessera_followed_age_seconds", "gauge",
       "Time since the followed publication was written, by the trainer's "
       "clock.",
       [](const Followed& f) { return f.age_s; });
  each("tessera_followed_updates_total", "counter", "Versions that replaced the one before.",
       [](const Followed& f) { return static_cast<uint64_t>(f.updates); });
  each("tessera_followed_refused_total", "counter", "Publications that could not be used.",
       [](const Followed& f) { return static_cast<uint64_t>(f.refused); });
}

// Writes nothing if no histories are kept.
void histories_text(std::string& out, const Gauges& gauges) {
  if (!gauges.histories) return;
  const auto each = [&](const char* name, const char* type, const char* help, int64_t value) {
    head(out, name, type, help);
    line(out, name, "", static_cast<uint64_t>(value));
  };
  const Gauges::Histories& h = *gauges.histories;
  each("tessera_history_users", "gauge", "Users whose events are kept.", h.users);
  each("tessera_history_bytes", "gauge", "Memory of users and their events.", h.bytes);
  each("tessera_history_events_total", "counter", "Events that were added.", h.events);
  each("tessera_history_refused_events_total", "counter", "Events that were refused.", h.refused);
  each("tessera_history_forgotten_users_total", "counter", "Users that were forgotten because memory was full.",
       h.forgotten);
  each("tessera_history_unknown_users_total", "counter", "Rows that named a user without events.", h.unknown_users);
}

}  // namespace

const char* to_string(Failure failure) {
  constexpr const char* kNames[kFailures] = {"bad_request", "bad_http",    "not_found", "too_large",
                                             "slow_sender", "forbidden",   "no_token",  "queue_full",
                                             "deadline",    "unavailable", "busy",      "internal"};
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
    line(out, base + "_bucket", "{le=\"" + bound + "\"}", sum);
  }
  line(out, base + "_sum", "", static_cast<double>(millionths_.load(std::memory_order_relaxed)) / 1e6);
  line(out, base + "_count", "", sum);
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
  head(out, "tessera_bad_ids_total", "counter",
       "Ids out of range, by table. It starts at 0 with each model that is loaded, but not with followed versions.");
  for (const Gauges::Model& model : gauges.models) {
    const std::string whose = model.followed ? "{model=" + label(model.name) : labels(model);
    for (const auto& [table, n] : model.bad_ids)
      line(out, "tessera_bad_ids_total", whose + ",table=" + label(table) + "}", n);
  }
  unknown_ids_text(out, gauges);
  head(out, "tessera_model_info", "gauge", "1 for each model that is served.");
  for (const Gauges::Model& model : gauges.models) line(out, "tessera_model_info", labels(model) + "}", uint64_t{1});
  followed_text(out, gauges);
  histories_text(out, gauges);
  head(out, "tessera_reloads_total", "counter", "Loads of a model after the first.");
  line(out, "tessera_reloads_total", "{result=\"done\"}", reloads_.load(std::memory_order_relaxed));
  line(out, "tessera_reloads_total", "{result=\"failed\"}", failed_reloads_.load(std::memory_order_relaxed));
  prometheus::resident_memory(out);
  return out;
}

}  // namespace tessera::serve
