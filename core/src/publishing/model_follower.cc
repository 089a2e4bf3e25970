// ModelFollower: two copies of the model's tables. One is read; deltas are written to the other, which then takes its
// place, and the one before is written in its turn, once its last reader has gone.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "inference/counts.h"
#include "publishing/patched_model.h"
#include "publishing/publish_directory.h"
#include "tessera/online.h"

namespace tessera {

using namespace publishing;

namespace {

constexpr size_t kAtOnce = 16;                       // deltas in memory
constexpr auto kPatience = std::chrono::seconds(1);  // for the readers of the version before the current one

struct Taken {
  Publication publication;
  Delta content;
};

}  // namespace

struct ModelFollower::Impl {
  struct Side {
    PatchedModel tables;
    std::vector<std::shared_ptr<const Taken>> missing;  // that the other side has
    std::weak_ptr<Predictor> reader;
  };

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
  std::shared_ptr<const Taken> read(int64_t number, const Publication& before) const;
  std::vector<std::shared_ptr<const Taken>> next_deltas();
  bool apply(const std::vector<std::shared_ptr<const Taken>>& deltas);
  void take_base(int64_t number);
  bool take_newer_base();
  void show(Side& side, const Publication& what);
  void look_for_gap();
  bool update();
  void begin();

  const Runtime& runtime;
  const std::string directory;
  const FollowOptions options;

  std::mutex updating;  // who holds it may use these:
  std::array<Side, 2> sides;
  size_t read_side = 0;
  checkpoint::Descriptor base_lock;
  std::shared_ptr<inference::PredictorCounts> counts;  // of all versions
  Publication taken;                                   // the last one
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

std::shared_ptr<const Taken> ModelFollower::Impl::read(int64_t number, const Publication& before) const {
  const std::string path = path_of(Publication::kDelta, number);
  auto out = std::make_shared<Taken>();
  out->publication = read_publication(directory, Publication::kDelta, number);
  const Publication& p = out->publication;
  if (p.chain != before.chain)
    fail(Code::kDataLoss, path, ".json is of another chain, ", p.chain, " instead of ", before.chain,
         ": it does not belong to the model that is followed");
  if (p.previous != before.hash)
    fail(Code::kDataLoss, path, ".json follows ", p.previous, ", and publication ", before.number, " is ", before.hash,
         ": it belongs behind another one");
  out->content = read_delta(directory, p);
  sides[read_side].tables.check(out->content, cat(directory, '/', p.file->name));
  return out;
}

std::vector<std::shared_ptr<const Taken>> ModelFollower::Impl::next_deltas() {
  std::vector<std::shared_ptr<const Taken>> out;
  while (out.size() < kAtOnce) {
    const Publication& before = out.empty() ? taken : out.back()->publication;
    const std::string name = Publication::name_of(Publication::kDelta, before.number + 1);
    if (!is_there(Publication::kDelta, before.number + 1) || was_refused(name)) break;
    try {
      out.push_back(read(before.number + 1, before));
    } catch (const Error& e) {
      if (e.code() != Code::kDataLoss && e.code() != Code::kUnimplemented) break;  // it may do better the next time
      refuse(name, e.what());
      break;
    }
  }
  return out;
}

// False: somebody still reads what would be written.
bool ModelFollower::Impl::apply(const std::vector<std::shared_ptr<const Taken>>& deltas) {
  Side& side = sides[1 - read_side];
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!side.reader.expired()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Where memory runs out in between, all of it is written once more the next time, and comes out the same.
  for (const auto& delta : side.missing) side.tables.apply(delta->content);
  for (const auto& delta : deltas) side.tables.apply(delta->content);
  show(side, deltas.back()->publication);
  side.missing.clear();
  sides[read_side].missing.insert(sides[read_side].missing.end(), deltas.begin(), deltas.end());
  read_side = 1 - read_side;
  return true;
}

void ModelFollower::Impl::show(Side& side, const Publication& what) {
  InferenceModel model = side.tables.model();
  model.description.version = what.hash;
  if (!counts || counts->bad_ids.size() != model.tables.size())
    counts = std::make_shared<inference::PredictorCounts>(model.tables.size());
  const FollowOptions::Open open = [this](InferenceModel m) {
    return inference::make_predictor(runtime, std::move(m), options.predictor, counts);
  };
  std::shared_ptr<Predictor> next = options.make ? options.make(std::move(model), open) : open(std::move(model));
  side.reader = next;
  taken = what;
  const std::lock_guard lock(mutex);
  if (current) ++status.updates;
  current.swap(next);
  status.number = what.number;
  status.version = what.hash;
  status.published_at = what.time;
}

void ModelFollower::Impl::take_base(int64_t number) {
  const std::string path = path_of(Publication::kBase, number);
  checkpoint::Descriptor lock = hold_base(path);
  const Publication base = read_publication(directory, Publication::kBase, number);
  verify_packed_model(path);
  std::array<Side, 2> fresh;
  for (Side& side : fresh) side.tables = PatchedModel(path);
  sides = std::move(fresh);
  base_lock = std::move(lock);
  show(sides[read_side], base);
  known.clear();
}

bool ModelFollower::Impl::take_newer_base() {
  std::vector<int64_t> bases = publications_in(directory, Publication::kBase);
  for (auto number = bases.rbegin(); number != bases.rend() && *number > taken.number; ++number) {
    const std::string name = Publication::name_of(Publication::kBase, *number);
    if (was_refused(name)) continue;
    try {
      take_base(*number);
      return true;
    } catch (const Error& e) {
      if (is_there(Publication::kBase, *number)) refuse(name, e.what());  // else it made way for a newer one
    }
  }
  return false;
}

void ModelFollower::Impl::look_for_gap() {
  const int64_t next = taken.number + 1;
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
    if (const auto deltas = next_deltas(); !deltas.empty()) {
      // Who is told of a change lets go of the version before: that is not waited for here.
      if ((changed && !sides[1 - read_side].reader.expired()) || !apply(deltas)) break;
      changed = true;
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
