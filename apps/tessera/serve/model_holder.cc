#include "serve/model_holder.h"

#include <chrono>
#include <utility>

#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr auto kLook = std::chrono::milliseconds(500);         // between checks whether the model is still usable
constexpr auto kReloadPause = std::chrono::milliseconds(500);  // between attempts to reload a lost model

}  // namespace

ModelHolder::ModelHolder(const std::string& name, Open open, Metrics& metrics, Log& log)
    : open_(std::move(open)),
      metrics_(metrics),
      log_(log),
      current_(open_()),
      name_(name.empty() ? current_->model().name : name),
      thread_([this] { work(); }) {}

ModelHolder::~ModelHolder() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<Predictor> ModelHolder::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void ModelHolder::reload(std::function<void(const Reloaded&)> done) {
  {
    const std::lock_guard lock(mutex_);
    load_ = true;
    unloaded_ = false;
    if (done) asked_.push_back(std::move(done));
  }
  wake_.notify_all();
}

bool ModelHolder::replace(std::shared_ptr<Predictor> model) {
  const std::lock_guard lock(mutex_);
  if (!current_ || current_ == model) return false;
  current_.swap(model);  // the previous model is destroyed without the lock
  return true;
}

void ModelHolder::unload() {
  std::shared_ptr<Predictor> gone;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    gone = std::move(current_);
    current_.reset();
    unloaded_ = true;
    load_ = !asked_.empty();
  }
  if (gone) log_.write(Level::kInfo, "model_unloaded", {{"model", name_}, {"version", gone->model().version}});
}

bool ModelHolder::unloaded() const {
  const std::lock_guard lock(mutex_);
  return unloaded_;
}

void ModelHolder::lost(const std::shared_ptr<Predictor>& model) {
  std::shared_ptr<Predictor> gone;
  {
    const std::lock_guard lock(mutex_);
    if (current_ != model) return;
    gone = std::move(current_);
    current_.reset();
    load_ = true;
  }
  log_.write(Level::kWarning, "model_lost", {{"model", name_}, {"version", gone->model().version}});
  wake_.notify_all();
}

Reloaded ModelHolder::load() {
  Reloaded result;
  std::shared_ptr<Predictor> before = current();
  if (before) result.previous = before->model().version;
  try {
    std::shared_ptr<Predictor> next = open_();
    result.version = next->model().version;
    {
      const std::lock_guard lock(mutex_);
      if (unloaded_) fail(Code::kAborted, "the model was unloaded while it was being loaded");
      current_.swap(next);
    }
    result.done = true;
    log_.write(Level::kInfo, "model_loaded",
               {{"model", name_}, {"version", result.version}, {"previous", result.previous}});
  } catch (const std::exception& e) {
    result.error = e.what();
    log_.write(Level::kError, "model_not_loaded",
               {{"model", name_}, {"error", result.error}, {"served", result.previous}});
  }
  metrics_.reload(result.done);
  return result;
}

void ModelHolder::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!wake_.wait_for(lock, kLook, [this] { return load_ || stopping_; })) {
      lock.unlock();
      if (const std::shared_ptr<Predictor> model = current(); model && !model->usable()) lost(model);
      lock.lock();
      continue;
    }
    auto asked = std::exchange(asked_, {});
    if (stopping_) {
      lock.unlock();
      for (const auto& done : asked) done({false, "the server is ending", "", ""});
      return;
    }
    load_ = false;
    lock.unlock();
    const Reloaded result = load();
    for (const auto& done : asked) done(result);
    asked.clear();
    lock.lock();
    if (!current_ && !unloaded_ && !stopping_) {
      load_ = true;
      wake_.wait_for(lock, kReloadPause, [this] { return stopping_; });
    }
  }
}

}  // namespace tessera::serve
