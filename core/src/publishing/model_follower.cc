// ModelFollower: looks for what was published, and shows what belongs behind what it has.
#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "inference/counts.h"
#include "inference/sharded.h"
#include "publishing/followed_tables.h"
#include "publishing/rank_target.h"
#include "tessera/online.h"

namespace tessera {

using namespace publishing;

namespace {

// Errors of ranks that are not there or late, not of the publication that they were to take.
bool is_of_ranks(Code code) {
  return code == Code::kUnavailable || code == Code::kAborted || code == Code::kDeadlineExceeded ||
         code == Code::kCancelled || code == Code::kResourceExhausted;
}

bool has_keys(const InferenceModel& model) {
  return std::any_of(model.tables.begin(), model.tables.end(), [](const QuantizedTable& t) {
    return t.config.remapping && t.config.remapping->keys().defined();
  });
}

}  // namespace

struct ModelFollower::Impl {
  Impl(const Runtime& r, std::string where, FollowOptions o)
      : runtime(r), directory(std::move(where)), options(std::move(o)) {}

  std::string path_of(Publication::Kind kind, int64_t number) const {
    return cat(directory, '/', Publication::name_of(kind, number));
  }
  bool is_there(Publication::Kind kind, int64_t number) const {
    std::error_code ignored;
    return std::filesystem::exists(path_of(kind, number) + ".json", ignored);
  }
  std::string stamp(const std::string& name) const;
  bool was_refused(const std::string& name) const { return known.contains(name) && known.at(name) == stamp(name); }
  void refuse(const std::string& name, const std::string& why);
  std::vector<TakenDelta> next_deltas();
  enum class Took { kYes, kNotYet, kRefused };
  Took take(std::span<const TakenDelta> deltas);
  void apply(std::span<const TakenDelta> deltas);
  void take_base(int64_t number);
  bool take_newer_base();
  // Over ranks: meets them, and says to which publication they are to come, on the base of `from`.
  std::shared_ptr<ProcessGroup> meet(const FollowedTables& from, const Publication& what);
  std::shared_ptr<Predictor> made(InferenceModel model, const std::shared_ptr<ProcessGroup>& group);
  void show(std::shared_ptr<Predictor> next, const Publication& what);
  void look_for_gap();
  bool update();
  void begin();

  const Runtime& runtime;
  const std::string directory;
  const FollowOptions options;

  std::mutex updating;  // who holds it may use these:
  FollowedTables tables;
  std::optional<EmbeddingModuleShardingPlan> plan;     // of the ranks, as long as the base is the same
  std::shared_ptr<inference::PredictorCounts> counts;  // of all versions
  int64_t gap = 0;                                     // the number that was last found missing
  std::map<std::string, std::string> known;            // refused, and when they were written

  mutable std::mutex mutex;  // of these:
  std::shared_ptr<Predictor> current;
  FollowStatus status;
  std::vector<std::string> refusals;
};

// When a publication's files were written.
std::string ModelFollower::Impl::stamp(const std::string& name) const {
  std::string out;
  for (const char* suffix : {".json", ".safetensors"}) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(cat(directory, '/', name, suffix), error);
    out += cat(error ? 0 : time.time_since_epoch().count(), ' ');
  }
  return out;
}

// Once each; and again when its files are others.
void ModelFollower::Impl::refuse(const std::string& name, const std::string& why) {
  known[name] = stamp(name);
  const std::lock_guard lock(mutex);
  ++status.refused;
  refusals.push_back(why);
}

std::vector<TakenDelta> ModelFollower::Impl::next_deltas() {
  std::vector<TakenDelta> out;
  while (out.size() < kAtOnce) {
    const Publication& before = out.empty() ? tables.taken() : out.back()->publication;
    const std::string name = Publication::name_of(Publication::kDelta, before.number + 1);
    if (!is_there(Publication::kDelta, before.number + 1) || was_refused(name)) break;
    try {
      out.push_back(tables.read(before.number + 1, before));
    } catch (const Error& e) {
      if (e.code() != Code::kDataLoss && e.code() != Code::kUnimplemented) break;  // it may do better the next time
      refuse(name, e.what());
      break;
    }
  }
  return out;
}

ModelFollower::Impl::Took ModelFollower::Impl::take(std::span<const TakenDelta> deltas) {
  if (!tables.wait_for_other()) return Took::kNotYet;
  try {
    apply(deltas);
    return Took::kYes;
  } catch (const Error& e) {
    if (!options.ranks || is_of_ranks(e.code())) throw;
    if (deltas.size() > 1) return take(deltas.first(1));  // which of them is it?
    refuse(deltas.front()->publication.name(), e.what());
    return Took::kRefused;
  }
}

void ModelFollower::Impl::apply(std::span<const TakenDelta> deltas) {
  const Publication what = deltas.back()->publication;
  const std::shared_ptr<ProcessGroup> group = meet(tables, what);  // before anything is written
  std::shared_ptr<Predictor> next = made(tables.ahead(deltas), group);
  tables.turn(deltas);
  tables.read_by(next);
  show(std::move(next), what);
}

std::shared_ptr<ProcessGroup> ModelFollower::Impl::meet(const FollowedTables& from, const Publication& what) {
  if (!options.ranks) return nullptr;
  std::shared_ptr<ProcessGroup> group = options.ranks->meet();
  // Rows with ids of their own come and go: their table is cut anew for each version.
  if (!plan && !has_keys(from.current()))
    plan =
        options.ranks->sharded.plan ? options.ranks->sharded.plan : inference::planned(runtime, from.current(), *group);
  tell(*group, {.base = from.base().number,
                .number = what.number,
                .base_hash = from.base().hash,
                .hash = what.hash,
                .plan = plan});
  (void)inference::agreed(*group, [] { return std::string(); });  // what the others could not read
  return group;
}

std::shared_ptr<Predictor> ModelFollower::Impl::made(InferenceModel model, const std::shared_ptr<ProcessGroup>& group) {
  if (!counts || counts->bad_ids.size() != model.tables.size())
    counts = std::make_shared<inference::PredictorCounts>(model.tables.size());
  if (options.ranks) {
    ShardedPredictorOptions sharded = options.ranks->sharded;
    if (plan) sharded.plan = plan;
    sharded.counts = counts;
    return options.ranks->make(
        runtime, [&] { return std::move(model); }, group, sharded);
  }
  const FollowOptions::Open open = [this](InferenceModel m) {
    return inference::make_predictor(runtime, std::move(m), options.predictor, counts);
  };
  return options.make ? options.make(std::move(model), open) : open(std::move(model));
}

void ModelFollower::Impl::show(std::shared_ptr<Predictor> next, const Publication& what) {
  const std::lock_guard lock(mutex);
  if (current) ++status.updates;
  current.swap(next);
  status.number = what.number;
  status.version = what.hash;
  status.published_at = what.time;
}

void ModelFollower::Impl::take_base(int64_t number) {
  FollowedTables fresh(directory, number, true);
  std::optional<EmbeddingModuleShardingPlan> before = std::exchange(plan, std::nullopt);  // of `tables`
  std::shared_ptr<Predictor> next;
  try {
    const std::shared_ptr<ProcessGroup> group = meet(fresh, fresh.base());
    if (plan) fresh.keep(rows_read(*plan, group->rank(), options.ranks->whole_tables));
    next = made(fresh.current(), group);
  } catch (...) {
    plan = std::move(before);
    throw;
  }
  fresh.read_by(next);
  tables = std::move(fresh);
  show(std::move(next), tables.taken());
  known.clear();
}

bool ModelFollower::Impl::take_newer_base() {
  std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  for (auto number = bases.rbegin(); number != bases.rend() && *number > tables.taken().number; ++number) {
    const std::string name = Publication::name_of(Publication::kBase, *number);
    if (was_refused(name)) continue;
    try {
      take_base(*number);
      return true;
    } catch (const Error& e) {
      if (options.ranks && is_of_ranks(e.code())) throw;
      if (is_there(Publication::kBase, *number)) refuse(name, e.what());  // else it made way for a newer one
    }
  }
  return false;
}

void ModelFollower::Impl::look_for_gap() {
  const int64_t next = tables.taken().number + 1;
  const std::vector<int64_t> there = publications_in(directory, Publication::kDelta);
  if (there.empty() || there.back() <= next || is_there(Publication::kDelta, next) || gap == next) return;
  const std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  if (!bases.empty() && bases.back() >= next && !was_refused(Publication::name_of(Publication::kBase, bases.back())))
    return;  // it came just now
  gap = next;
  refuse(cat("gap-", next), cat(path_of(Publication::kDelta, next), ".json is missing, and publication ", there.back(),
                                " is there: the model stays as it is until the next base"));
}

bool ModelFollower::Impl::update() {
  bool changed = false;
  while (true) {
    if (const std::vector<TakenDelta> deltas = next_deltas(); !deltas.empty()) {
      // Who is told of a change lets go of the version before: that is not waited for here.
      if (changed && !tables.other_is_free()) break;
      const Took took = take(deltas);
      if (took == Took::kNotYet) break;
      changed |= took == Took::kYes;
    } else if (take_newer_base()) {
      changed = true;
    } else {
      break;
    }
  }
  look_for_gap();
  return changed;
}

void ModelFollower::Impl::begin() {
  const std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  if (bases.empty())
    fail(Code::kNotFound, "there is no base at ", directory, ": tessera train --publish writes one when it is due");
  std::optional<Error> first;
  for (auto number = bases.rbegin(); number != bases.rend(); ++number) {
    try {
      take_base(*number);
      return;
    } catch (const Error& e) {
      if (options.ranks && is_of_ranks(e.code())) throw;
      refuse(Publication::name_of(Publication::kBase, *number), e.what());
      if (!first) first = e;
    }
  }
  throw Error(*first);
}

ModelFollower::ModelFollower(const Runtime& runtime, std::string directory, FollowOptions options)
    : impl_(std::make_unique<Impl>(runtime, std::move(directory), std::move(options))) {
  impl_->begin();
  impl_->update();
}

ModelFollower::~ModelFollower() = default;

std::shared_ptr<Predictor> ModelFollower::current() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->current;
}

FollowStatus ModelFollower::status() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->status;
}

bool ModelFollower::update() {
  const std::lock_guard lock(impl_->updating);
  return impl_->update();
}

std::shared_ptr<Predictor> ModelFollower::reopen() {
  const std::lock_guard lock(impl_->updating);
  impl_->known.clear();
  impl_->begin();
  impl_->update();
  return current();
}

std::vector<std::string> ModelFollower::refusals() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->refusals, {});
}

}  // namespace tessera
