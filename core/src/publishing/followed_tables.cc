#include "publishing/followed_tables.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "publishing/publish_directory.h"
#include "tessera/error.h"

namespace tessera::publishing {

FollowedTables::FollowedTables(std::string directory, int64_t number, bool verify) {
  const std::string path = str_cat(directory, '/', Publication::name_of(Publication::kBase, number));
  lock_ = hold_base(path);
  taken_ = base_ = read_publication(directory, Publication::kBase, number);
  if (verify) verify_packed_model(path);
  for (Side& side : sides_) {
    side.tables = PatchedModel(path);
    side.applied = number;
  }
  directory_ = std::move(directory);
}

bool FollowedTables::is_past(int64_t number) const {
  return std::any_of(sides_.begin(), sides_.end(), [&](const Side& side) { return side.applied > number; });
}

TakenDelta FollowedTables::read(int64_t number, const Publication& before) const {
  const std::string path = str_cat(directory_, '/', Publication::name_of(Publication::kDelta, number));
  auto out = std::make_shared<Taken>();
  out->publication = read_publication(directory_, Publication::kDelta, number);
  const Publication& p = out->publication;
  if (p.chain != before.chain)
    fail(Code::kDataLoss, path, ".json belongs to another chain, ", p.chain, " instead of ", before.chain,
         ": it does not belong to the model that is followed");
  if (p.previous != before.hash)
    fail(Code::kDataLoss, path, ".json follows ", p.previous, ", and publication ", before.number, " is ", before.hash,
         ": it follows another one");
  out->content = read_delta(directory_, p);
  sides_[read_side_].tables.check(out->content, str_cat(directory_, '/', p.file->name));
  return out;
}

InferenceModel FollowedTables::model_of(const Side& side, const Publication& what) const {
  InferenceModel model = side.tables.model();
  model.description.version = what.hash;
  return model;
}

InferenceModel FollowedTables::current() const { return model_of(sides_[read_side_], taken_); }

bool FollowedTables::other_is_free() const {
  const auto& readers = sides_[1 - read_side_].readers;
  return std::all_of(readers.begin(), readers.end(), [](const auto& reader) { return reader.expired(); });
}

bool FollowedTables::wait_for_other(std::chrono::milliseconds most) const {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!other_is_free()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

InferenceModel FollowedTables::ahead(std::span<const TakenDelta> deltas) {
  TESSERA_CHECK(!deltas.empty() && other_is_free(), "deltas, and a copy that nobody reads");
  Side& side = other();
  // Apply each delta only once, because rows with their own ids would otherwise come in another order than on other
  // ranks. A delta that failed for lack of memory is applied again, with the same result.
  const auto write = [&](const TakenDelta& delta) {
    if (delta->publication.number <= side.applied) return;
    side.tables.apply(delta->content, kept_ ? &*kept_ : nullptr);
    side.applied = delta->publication.number;
  };
  const Publication& last = deltas.back()->publication;
  if (side.applied > last.number)
    fail(Code::kAborted, "publication ", side.applied, " was only partly applied, and ", last.number,
         " is the newest one left: the model stays as it is until there is a later one");
  for (const TakenDelta& delta : side.missing) write(delta);
  for (const TakenDelta& delta : deltas) write(delta);
  return model_of(side, last);
}

void FollowedTables::turn(std::span<const TakenDelta> deltas) {
  other().missing.clear();
  std::vector<TakenDelta>& missing = sides_[read_side_].missing;
  missing.insert(missing.end(), deltas.begin(), deltas.end());
  read_side_ = 1 - read_side_;
  sides_[read_side_].readers.clear();
  taken_ = deltas.back()->publication;
}

void FollowedTables::read_by(const std::shared_ptr<Predictor>& reader) {
  auto& readers = sides_[read_side_].readers;
  std::erase_if(readers, [](const auto& r) { return r.expired(); });
  readers.emplace_back(reader);
}

}  // namespace tessera::publishing
