#include "train/best_model.h"

#include <cstdlib>
#include <filesystem>

#include "checkpoint/directory.h"
#include "checkpoint/together.h"
#include "tessera/error.h"
#include "train/save_schedule.h"
#include "train/saved_run.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

std::string new_temporary_folder() {
  std::string path = (fs::temp_directory_path() / "tessera-best-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr)
    fail(Code::kUnavailable, "validation.restore_best needs a temporary folder, and none can be made in ",
         fs::temp_directory_path().string(), ": set TMPDIR, or name a folder with --save-best");
  return path;
}

std::string beside(const std::string& directory) {
  const fs::path path = fs::path(directory).lexically_normal();
  return str_cat((path.has_filename() ? path : path.parent_path()).string(), ".best-so-far");
}

}  // namespace

BestFolder::BestFolder(const TrainJobOptions& options, const ProcessGroup& group)
    : temporary_(options.save.empty()), first_rank_(group.rank() == 0) {
  if (!temporary_) {
    path_ = beside(options.save);
    return;
  }
  if (group.local_world_size() != group.world_size())
    fail(Code::kInvalidArgument,
         "validation.restore_best keeps the best model in a folder, and this job's hosts have no temporary folder in "
         "common: name one that all of them can write, with --save or --save-best");
  path_ = checkpoint::together(group, "folder of the best model",
                               [&] { return first_rank_ ? new_temporary_folder() : std::string(); })[0];
}

BestFolder::~BestFolder() {
  if (temporary_) remove();
}

void BestFolder::remove() {
  try {
    if (first_rank_) checkpoint::remove_checkpoints(path_);
  } catch (const Error&) {  // it cannot be read, so it stays
  }
}

void BestModel::check_place(const Lock& lock) {
  CheckpointWriter writer(directory_, trainer_.parallel(), trainer_.dense_optimizer(), 1);
  writer.hold(lock);
  writer.check_place();
}

TrainSave BestModel::save(int64_t step, const std::string& progress, const Lock& lock) {
  CheckpointWriter writer(directory_, trainer_.parallel(), trainer_.dense_optimizer(), 1);
  writer.hold(lock);
  TrainSave save{step, 0, "", true};
  try {
    writer.save(progress);
  } catch (const Error& e) {
    if (!of_the_disk(e)) throw;
    save.error = e.what();
  }
  return save;
}

std::optional<int64_t> BestModel::load(int64_t now, const std::string& monitor, double best) {
  if (directory_.empty() || !checkpoint::has_checkpoint(directory_)) return std::nullopt;
  const SavedRun saved = SavedRun::from_progress(saved_progress(directory_), directory_);
  if (!saved.scores || saved.scores->monitor != monitor || saved.scores->least != best) return std::nullopt;
  if (saved.step == now) return std::nullopt;
  load_checkpoint(directory_, trainer_.parallel(), trainer_.dense_optimizer());
  return saved.step;
}

}  // namespace tessera
