#include "train/live_metrics.h"

#include <sys/resource.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "serve/prometheus.h"

namespace tessera::cli {
namespace {

namespace prometheus = serve::prometheus;

void add(std::string& out, const char* name, const char* type, const char* help, double value) {
  prometheus::head(out, name, type, help);
  prometheus::line(out, name, "", value);
}

// Descriptors that training opens after its start: files of a checkpoint, a trace, data.
constexpr size_t kOfTraining = 128;

// Connections must leave enough descriptors for checkpoints. Raises the limit, or refuses the `options`.
const serve::ServerOptions& with_descriptors(const serve::ServerOptions& options) {
  namespace fs = std::filesystem;
  std::error_code failed;
  size_t open = 0;
  for (fs::directory_iterator at("/proc/self/fd", failed), end; !failed && at != end; at.increment(failed)) ++open;
  const rlim_t needed = open + options.max_connections + serve::ServerOptions::kTurnedAway + kOfTraining;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return options;
  const rlim_t most = limit.rlim_max;
  limit.rlim_cur = needed;
  if (most < needed || setrlimit(RLIMIT_NOFILE, &limit) != 0)
    fail(Code::kResourceExhausted, "--metrics needs ", needed, " open files, so that connections leave some for ",
         "checkpoints, and this process may have ", most, " (ulimit -Hn): raise that limit, or leave --metrics out");
  return options;
}

}  // namespace

serve::ServerOptions metrics_address(const std::string& text) {
  constexpr size_t kConnections = 16;  // one or two programs ask every few seconds
  serve::ServerOptions out;
  out.max_connections = kConnections;
  const size_t colon = text.rfind(':');
  const std::string port = text.substr(colon == std::string::npos ? 0 : colon + 1);
  if (colon != std::string::npos) out.host = text.substr(0, colon);
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size() || out.port < 0 || out.port > 65535)
    fail(Code::kInvalidArgument, "--metrics takes PORT or ADDRESS:PORT, with a port of 0 to 65535, not \"", text, '"');
  return out;
}

LiveMetrics::LiveMetrics(const serve::ServerOptions& address, std::string checkpoints, int64_t steps)
    : checkpoints_(std::move(checkpoints)),
      steps_(steps),
      server_(with_descriptors(address), counts_, log_),
      thread_([this] { server_.run(*this); }) {}

LiveMetrics::~LiveMetrics() {
  server_.end();
  thread_.join();
}

void LiveMetrics::set(const TrainProgress& progress, std::vector<Stages> stages, std::vector<double> waited) {
  const std::lock_guard lock(mutex_);
  progress_ = progress;
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  stages_ = std::move(stages);
  waited_ = std::move(waited);
}

void LiveMetrics::set(const TrainValidation& validation) {
  const std::lock_guard lock(mutex_);
  validation_ = validation;
}

serve::Clock::time_point LiveMetrics::handle(serve::HttpRequest&& request, const Respond& respond) {
  const bool here = serve::path_of(request.target) == "/metrics";
  if (!here)
    respond(serve::HttpResponse::failed(404, serve::Failure::kNotFound, "there is only /metrics here"));
  else if (request.method != "GET" && request.method != "HEAD")
    respond(serve::HttpResponse::not_allowed(request.method, "GET, HEAD"));
  else
    respond(serve::HttpResponse::prometheus(text()));
  return serve::Clock::time_point::max();
}

serve::HttpResponse LiveMetrics::overdue() const {
  return serve::HttpResponse::failed(503, serve::Failure::kDeadline, "the answer is overdue");
}

std::string LiveMetrics::text() {
  std::string out;
  {
    const std::lock_guard lock(mutex_);
    add_training(out);
  }
  if (!checkpoints_.empty()) add_checkpoint(out);
  prometheus::resident_memory(out);
  return out;
}

void LiveMetrics::add_training(std::string& out) const {
  add(out, "tessera_train_step", "gauge", "Steps done, including those before this run.",
      static_cast<double>(progress_.step));
  add(out, "tessera_train_steps", "gauge", "Total number of steps.", static_cast<double>(steps_));
  add(out, "tessera_train_epoch", "gauge", "The epoch of the last step.", static_cast<double>(progress_.epoch));
  add(out, "tessera_train_samples_total", "counter", "Samples of all ranks in this run.",
      static_cast<double>(progress_.samples));
  add(out, "tessera_train_seconds_total", "counter", "Time from the start of training to the last report.", seconds_);
  add(out, "tessera_train_loss", "gauge", "The mean loss of the steps between the last two reports.",
      progress_.samples > 0 ? progress_.loss : std::nan(""));
  constexpr const char* kRate = "tessera_train_learning_rate_factor";
  prometheus::head(out, kRate, "gauge", "Factor of the learning rates of tables and of dense layers.");
  prometheus::line(out, kRate, "{of=\"tables\"}", progress_.table_rate);
  prometheus::line(out, kRate, "{of=\"dense\"}", progress_.dense_rate);
  constexpr const char* kStage = "tessera_train_stage_seconds_total";
  prometheus::head(out, kStage, "counter",
                   "Time in each stage of a step, by rank; exchanges include waiting for "
                   "others.");
  for (size_t rank = 0; rank < stages_.size(); ++rank) {
    for (const auto& [stage, seconds] : stages_[rank])
      prometheus::line(out, kStage, str_cat("{rank=\"", rank, "\",stage=", prometheus::label(stage), "}"), seconds);
  }
  constexpr const char* kWaited = "tessera_train_waited_seconds_total";
  if (!waited_.empty())
    prometheus::head(out, kWaited, "counter", "Time that all other ranks together waited for a rank.");
  for (size_t rank = 0; rank < waited_.size(); ++rank)
    prometheus::line(out, kWaited, str_cat("{peer=\"", rank, "\"}"), waited_[rank]);
  constexpr const char* kTraining = "tessera_train_training";
  if (!progress_.training.empty())
    prometheus::head(out, kTraining, "gauge",
                     "Metrics of training batches before the model learned from them "
                     "(metrics.training).");
  for (const auto& [name, value] : progress_.training)
    prometheus::line(out, kTraining, str_cat("{metric=", prometheus::label(name), "}"), value);
  if (validation_.metrics.values.empty()) return;
  add(out, "tessera_train_validation_step", "gauge", "Step of the last validation.",
      static_cast<double>(validation_.step));
  constexpr const char* kValidation = "tessera_train_validation";
  prometheus::head(out, kValidation, "gauge", "Metrics of the last validation.");
  for (const auto& [name, value] : validation_.metrics.values)
    prometheus::line(out, kValidation, str_cat("{metric=", prometheus::label(name), "}"), value);
}

void LiveMetrics::add_checkpoint(std::string& out) const {
  namespace fs = std::filesystem;
  try {
    const std::string path = checkpoint::hold_checkpoint(checkpoints_).path + "/" + checkpoint::kManifestFile;
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(path);
    add(out, "tessera_train_checkpoint_age_seconds", "gauge", "Age of the newest checkpoint in --save DIR.",
        std::chrono::duration<double>(age).count());
  } catch (const std::exception&) {  // there is no checkpoint yet
  }
}

}  // namespace tessera::cli
