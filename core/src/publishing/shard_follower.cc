// The other ranks of a followed model: each prepares the version that rank 0 is about to show.
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "inference/sharded.h"
#include "publishing/followed_tables.h"
#include "publishing/rank_target.h"
#include "tessera/online.h"

namespace tessera {

using namespace publishing;

namespace {

// Rank 0 sees the file. On a shared file system this rank may see it a little later.
void wait_for_publication(const std::string& directory, Publication::Kind kind, int64_t number) {
  const std::string path = str_cat(directory, '/', Publication::name_of(kind, number), ".json");
  std::error_code ignored;
  for (int i = 0; i < 100 && !std::filesystem::exists(path, ignored); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

struct ShardFollower::Impl {
  Impl(const Runtime& r, std::string where, FollowRanks o)
      : runtime(r), directory(std::move(where)), options(std::move(o)) {}

  void begin(const RankTarget& target, std::optional<KeptRows> keep);
  void free_other() const;
  void prepare(const RankTarget& target, int rank);

  const Runtime& runtime;
  const std::string directory;
  const FollowRanks options;
  FollowedTables tables;
  std::vector<TakenDelta> next;  // deltas after tables.taken(), up to the target
};

void ShardFollower::Impl::begin(const RankTarget& target, std::optional<KeptRows> keep) {
  tables = FollowedTables();  // free its memory first
  wait_for_publication(directory, Publication::kBase, target.base);
  FollowedTables fresh(directory, target.base, false);  // rank 0 has compared its checksums
  if (fresh.base().hash != target.base_hash)
    fail(Code::kDataLoss, directory, "/base-", target.base, ".json is ", fresh.base().hash, ", and rank 0 follows ",
         target.base_hash, ": all ranks need the same directory");
  fresh.keep(std::move(keep));
  tables = std::move(fresh);
}

void ShardFollower::Impl::free_other() const {
  if (!tables.wait_for_other())
    fail(Code::kUnavailable, "the version before publication ", tables.taken().number, " is still being read");
}

void ShardFollower::Impl::prepare(const RankTarget& target, int rank) {
  std::optional<KeptRows> keep;
  if (target.plan) keep = rows_read(*target.plan, rank, options.whole_tables);
  next.clear();
  if (tables.empty() || tables.base().number != target.base || tables.base().hash != target.base_hash ||
      tables.is_past(target.number) || tables.kept() != keep)
    begin(target, std::move(keep));
  const auto last = [&]() -> const Publication& { return next.empty() ? tables.taken() : next.back()->publication; };
  while (last().number < target.number) {
    if (next.size() == kAtOnce) {  // far behind: no version is shown in between
      free_other();
      (void)tables.ahead(next);
      tables.turn(next);
      next.clear();
    }
    wait_for_publication(directory, Publication::kDelta, last().number + 1);
    next.push_back(tables.read(last().number + 1, last()));
  }
  if (last().hash != target.hash)
    fail(Code::kDataLoss, directory, "/delta-", target.number, ".json is ", last().hash, ", and rank 0 follows ",
         target.hash, ": all ranks need the same directory");
}

ShardFollower::ShardFollower(const Runtime& runtime, std::string directory, FollowRanks options)
    : impl_(std::make_unique<Impl>(runtime, std::move(directory), std::move(options))) {}

ShardFollower::~ShardFollower() = default;

std::shared_ptr<ShardedPredictor> ShardFollower::open(const std::shared_ptr<ProcessGroup>& group) {
  Impl& my = *impl_;
  const RankTarget target = told(*group);
  (void)inference::agreed(*group, [&]() -> std::string {
    my.prepare(target, group->rank());
    return "";
  });
  const auto model = [&] {
    if (my.next.empty()) return my.tables.current();
    my.free_other();
    return my.tables.ahead(my.next);
  };
  std::shared_ptr<ShardedPredictor> out = my.options.make(my.runtime, model, group, my.options.sharded);
  if (!my.next.empty()) my.tables.turn(my.next);
  my.tables.read_by(out);
  my.next.clear();
  return out;
}

}  // namespace tessera
