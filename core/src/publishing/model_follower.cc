// ModelFollower looks for publications and shows those that follow its current one.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
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

// True for errors of missing or late ranks, which say nothing about the publication.
bool is_of_ranks(Code code) {
  return code == Code::kUnavailable || code == Code::kAborted || code == Code::kDeadlineExceeded ||
         code == Code::kCancelled || code == Code::kResourceExhausted;
}

// True if the publication itself is wrong until its files change. Any other error says nothing about it.
bool is_damage(Code code) {
  return code == Code::kDataLoss || code == Code::kUnimplemented || code == Code::kInvalidArgument ||
         code == Code::kFailedPrecondition || code == Code::kOutOfRange;
}

constexpr std::array kKinds = {Publication::kBase, Publication::kDelta};

using Clock = std::chrono::steady_clock;
constexpr auto kFirstPause = std::chrono::milliseconds(200), kLongestPause = std::chrono::milliseconds(60000);

// A publication that was refused.
struct Refused {
  std::string stamp, why;
  bool damage = true;  // true: until its files change; false: until `again`
  Clock::time_point again;
  std::chrono::milliseconds pause{0};  // the wait before `again`
};

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
    return str_cat(directory, '/', Publication::name_of(kind, number));
  }
  bool is_there(Publication::Kind kind, int64_t number) const {
    std::error_code ignored;
    return std::filesystem::exists(path_of(kind, number) + ".json", ignored);
  }
  std::string stamp(const std::string& name) const;
  bool was_refused(const std::string& name) const;
  void refuse(const std::string& name, Code code, const std::string& why);
  std::vector<TakenDelta> next_deltas();
  enum class Took { kYes, kNotYet, kRefused };
  Took take(std::span<const TakenDelta> deltas);
  void apply(std::span<const TakenDelta> deltas);
  void take_base(int64_t number);
  bool take_newer_base();
  bool take_base_if_good(int64_t number);
  bool take_another_chain();
  bool is_still_there() const;
  // Over ranks: meets them and tells them the next publication, with the base of `from`.
  std::shared_ptr<ProcessGroup> meet(const FollowedTables& from, const Publication& what);
  std::shared_ptr<Predictor> made(InferenceModel model, const std::shared_ptr<ProcessGroup>& group);
  void show(std::shared_ptr<Predictor> next, const Publication& what);
  void look_for_gap();
  void look_for_loss();
  bool update();
  void begin();

  const Runtime& runtime;
  const std::string directory;
  const FollowOptions options;

  std::mutex updating;  // guards the members below
  FollowedTables tables;
  std::optional<EmbeddingModuleShardingPlan> plan;     // of the ranks, while the base stays the same
  std::shared_ptr<inference::PredictorCounts> counts;  // of all versions
  int64_t gap = 0;                                     // the number that was last found missing
  std::map<std::string, Refused> known;                // by name
  std::string same_chain;                              // the followed chain's newest base, with its stamp
  int64_t lost = 0;                                    // the number that was last found to be gone

  mutable std::mutex mutex;  // guards the members below
  std::shared_ptr<Predictor> current;
  FollowStatus status;
  std::vector<std::string> refusals;
};

// Identifies the files of a publication: which ones exist, and when they were written.
std::string ModelFollower::Impl::stamp(const std::string& name) const {
  std::string out;
  for (const char* suffix : {"", ".json", ".safetensors"}) {  // the first is a base's directory
    struct stat file {};
    if (::stat(str_cat(directory, '/', name, suffix).c_str(), &file) != 0) file = {};
    out += str_cat(file.st_ino, ' ', file.st_size, ' ', file.st_mtim.tv_sec, '.', file.st_mtim.tv_nsec, ' ');
  }
  return out;
}

bool ModelFollower::Impl::was_refused(const std::string& name) const {
  const auto found = known.find(name);
  if (found == known.end() || found->second.stamp != stamp(name)) return false;
  return found->second.damage || Clock::now() < found->second.again;
}

// Reports a refusal once, and again if the files or the reason change.
void ModelFollower::Impl::refuse(const std::string& name, Code code, const std::string& why) {
  Refused& refused = known[name];
  std::string written = stamp(name);
  const bool said = refused.why == why && refused.stamp == written;
  refused.stamp = std::move(written);
  refused.why = why;
  refused.damage = is_damage(code);
  refused.pause = said ? std::min(2 * refused.pause, kLongestPause) : kFirstPause;
  refused.again = Clock::now() + refused.pause;
  if (said) return;
  const std::lock_guard lock(mutex);
  ++status.refused;
  refusals.push_back(refused.damage ? why : why + ": it is tried again");
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
      // If it is gone, it has made way for a base meanwhile.
      if (is_there(Publication::kDelta, before.number + 1)) refuse(name, e.code(), e.what());
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
    if (deltas.size() > 1) return take(deltas.first(1));  // find the bad one
    refuse(deltas.front()->publication.name(), e.code(), e.what());
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
  // Rows with their own ids change with each version, so such tables are planned anew each time.
  if (!plan && !has_keys(from.current()))
    plan =
        options.ranks->sharded.plan ? options.ranks->sharded.plan : inference::planned(runtime, from.current(), *group);
  tell(*group, {.base = from.base().number,
                .number = what.number,
                .base_hash = from.base().hash,
                .hash = what.hash,
                .plan = plan});
  (void)inference::agreed(*group, [] { return std::string(); });  // fails if the other ranks could not read it
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
  std::optional<EmbeddingModuleShardingPlan> before = std::exchange(plan, std::nullopt);  // belongs to `tables`
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
  same_chain.clear();
  gap = lost = 0;
}

// Takes a base, or reports why it cannot be taken.
bool ModelFollower::Impl::take_base_if_good(int64_t number) {
  const std::string name = Publication::name_of(Publication::kBase, number);
  if (was_refused(name)) return false;
  try {
    take_base(number);
    return true;
  } catch (const Error& e) {
    if (options.ranks && is_of_ranks(e.code())) throw;
    if (is_there(Publication::kBase, number)) refuse(name, e.code(), e.what());  // else it made way for a newer one
    return false;
  }
}

bool ModelFollower::Impl::take_newer_base() {
  const std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  for (auto number = bases.rbegin(); number != bases.rend() && *number > tables.taken().number; ++number) {
    if (take_base_if_good(*number)) return true;
  }
  return false;
}

// A directory that began anew reuses numbers. Otherwise its newest base has a greater number or belongs to the followed
// chain.
bool ModelFollower::Impl::take_another_chain() {
  const std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  if (bases.empty() || bases.back() > tables.taken().number) return false;
  const std::string name = Publication::name_of(Publication::kBase, bases.back());
  if (was_refused(name)) return false;
  const std::string seen = name + ' ' + stamp(name);
  if (seen == same_chain) return false;
  try {
    if (read_publication(directory, Publication::kBase, bases.back()).chain == tables.taken().chain) {
      same_chain = seen;
      return false;
    }
  } catch (const Error& e) {
    if (is_there(Publication::kBase, bases.back())) refuse(name, e.code(), e.what());
    return false;
  }
  return take_base_if_good(bases.back());
}

void ModelFollower::Impl::look_for_gap() {
  const int64_t next = tables.taken().number + 1;
  const std::vector<int64_t> there = publications_in(directory, Publication::kDelta);
  if (there.empty() || there.back() <= next || is_there(Publication::kDelta, next) || gap == next) return;
  const std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  if (!bases.empty() && bases.back() >= next && !was_refused(Publication::name_of(Publication::kBase, bases.back())))
    return;  // it has just come
  gap = next;
  refuse(str_cat("gap-", next), Code::kDataLoss,
         str_cat(path_of(Publication::kDelta, next), ".json is missing, but publication ", there.back(),
                 " exists: the model stays as it is until the next base"));
}

bool ModelFollower::Impl::is_still_there() const {
  return std::any_of(kKinds.begin(), kKinds.end(), [&](Publication::Kind kind) {
    const int64_t number = tables.taken().number;
    return is_there(kind, number) && read_publication(directory, kind, number).hash == tables.taken().hash;
  });
}

// Reports if the directory was emptied or restored from a backup, so that nothing in it is as new as the shown version.
void ModelFollower::Impl::look_for_loss() {
  const int64_t number = tables.taken().number;
  if (lost == number || is_there(Publication::kDelta, number) || is_there(Publication::kBase, number)) return;
  int64_t newest = 0;
  for (const Publication::Kind kind : kKinds) {
    const std::vector<int64_t> numbers = publications_in(directory, kind);
    if (!numbers.empty()) newest = std::max(newest, numbers.back());
  }
  if (newest > number) return;  // a newer one has replaced it
  lost = number;
  refuse(str_cat("lost-", number), Code::kDataLoss,
         str_cat("publication ", number, ", which is followed, is no longer in ", directory, ", which has ",
                 newest == 0 ? "none" : str_cat(newest, " as its newest"),
                 ": the model stays as it is until the base of another run, or until it is opened again"));
}

bool ModelFollower::Impl::update() {
  bool changed = false;
  while (true) {
    if (const std::vector<TakenDelta> deltas = next_deltas(); !deltas.empty()) {
      // Callers release the old version only after they are told of the change, so do not wait for that here.
      if (changed && !tables.other_is_free()) break;
      const Took took = take(deltas);
      if (took == Took::kNotYet) break;
      changed |= took == Took::kYes;
    } else if (take_newer_base() || take_another_chain()) {
      changed = true;
    } else {
      break;
    }
  }
  look_for_gap();
  look_for_loss();
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
      refuse(Publication::name_of(Publication::kBase, *number), e.code(), e.what());
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

std::shared_ptr<Predictor> ModelFollower::reload() {
  const std::lock_guard lock(impl_->updating);
  impl_->known.clear();
  impl_->update();
  if (!impl_->is_still_there()) {
    impl_->begin();
    impl_->update();
  }
  return current();
}

std::vector<std::string> ModelFollower::refusals() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->refusals, {});
}

}  // namespace tessera
