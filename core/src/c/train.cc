// The trainer of `tessera train` in tessera.h.
#include <atomic>

#include "c/call.h"
#include "c/handles.h"
#include "tessera/train_job.h"
#include "train/train_report.h"

using namespace tessera;
using namespace tessera::c;

namespace {

using Json = nlohmann::ordered_json;

TrainJobOptions job_options(const tsr_train_options& in) {
  const auto text = [](const char* given) { return given == nullptr ? std::string() : std::string(given); };
  if (in.save_every < 0 || in.max_steps < 0 || in.keep < 0)
    fail(Code::kInvalidArgument, "save_every, max_steps and keep are 0 or more");
  TrainJobOptions out;
  out.save = text(in.save);
  out.save_best = text(in.save_best);
  out.load = text(in.load);
  out.save_every = in.save_every;
  if (in.max_steps > 0) out.max_steps = in.max_steps;
  if (in.keep > 0) out.keep = in.keep;
  out.new_data = in.new_data != 0;
  out.overwrite = in.overwrite != 0;
  return out;
}

Config job_config(const tsr_train_options& in) {
  need(in.config, "options->config");
  if (in.num_overrides > 0) need(in.overrides, "options->overrides");
  std::vector<std::string> overrides;
  for (uint32_t i = 0; i < in.num_overrides; ++i) {
    need(in.overrides[i], "options->overrides[...]");
    overrides.emplace_back(in.overrides[i]);
  }
  return parse_config(in.config, in.source == nullptr ? "the config" : in.source, overrides);
}

// The caller's `watch`, called by the training thread. The pipeline's thread may read `stop`.
struct Watch {
  const tsr_train_options& in;
  const int64_t log_every;
  const bool tells;  // only on rank 0
  std::atomic<bool> stop{false};

  void ask(const Json* event) {
    if (in.watch == nullptr || (event != nullptr && !tells)) return;
    if (in.watch(in.user, event == nullptr ? nullptr : event->dump().c_str()) != 0) stop = true;
  }
  TrainWatch callbacks() {
    return {[this] { return stop.load(); },
            [this](int64_t step) {
              ask(nullptr);
              return in.watch != nullptr && log_every > 0 && step % log_every == 0;
            },
            [this](const TrainProgress& p) {
              const Json event{{"step", p.step}, {"epoch", p.epoch}, {"samples", p.samples}, {"loss", p.loss}};
              ask(&event);
            },
            [this](const TrainValidation& v) {
              Json values = Json::object();
              for (const auto& [name, value] : v.metrics.values) values[name] = value;
              const Json event{{"step", v.step}, {"validation", std::move(values)}, {"best", v.best}};
              ask(&event);
            }};
  }
};

// Returns rank 0's text on all ranks.
std::string from_rank_0(const ProcessGroup& group, const std::string& text) {
  const Tensor size = Tensor::scalar<int64_t>(std::ssize(text));
  group.broadcast(size, 0, "report").wait();
  std::string out = text;
  out.resize(static_cast<size_t>(size.item()));
  group.broadcast(Tensor::borrow(out.data(), {std::ssize(out)}, DType::kUInt8), 0, "report").wait();
  return out;
}

std::string trained(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const tsr_train_options& in) {
  Config config = job_config(in);
  TrainJobOptions options = job_options(in);
  options.device = open_device(runtime, config.job.device, group->local_rank(), config.job.kernel_plugin);
  TrainJob job(runtime, config, options, group);
  // Ranks add up losses after each step that is due, so either all of them do it or none.
  const Tensor asked = Tensor::scalar<int32_t>(in.watch != nullptr);
  group->all_reduce(asked, ReduceOp::kMin, "watch").wait();
  Watch watch{in, asked.item() != 0 ? config.report.log_every : 0, group->rank() == 0};
  const bool stopped = job.train(watch.callbacks()).stopped;
  // If a rank stops, it does not wait for an evaluation.
  const RunReport report = job.report(stopped ? job.untested() : job.evaluate());
  std::string text;
  if (group->rank() == 0) {
    Json out = json_of(report);
    out["stopped"] = stopped;
    text = out.dump();
  }
  return from_rank_0(*group, text);
}

}  // namespace

tsr_code tsr_train(const tsr_runtime* runtime, tsr_process_group* group, const tsr_train_options* options,
                   tsr_text** report, tsr_error* err) {
  return made(report, "report", err, [&] {
    need(runtime, "runtime");
    const tsr_train_options in = copy_in(options, "options");
    const std::shared_ptr<Session> session = session_of(runtime->shared, group);
    const Collective use(*session);
    try {
      return new tsr_text{trained(runtime->opened().runtime, session->group, in)};
    } catch (const std::exception& e) {
      session->group->abort(e.what());  // the other ranks give the same reason
      throw;
    }
  });
}
