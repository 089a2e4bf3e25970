#include "train/same_job.h"

#include <sstream>
#include <vector>

#include "config/fnv1a.h"
#include "tessera/error.h"

namespace tessera {

std::string common_job(const Config& config, const TrainJobOptions& options) {
  Config common = config;
  common.plugins = {};
  common.job.threads = 0;
  common.planner.plan.clear();
  common.data.path.clear();
  common.data.test_path.clear();
  common.report.json.clear();
  common.publish.directory = config.publish.directory.empty() ? "" : "given";
  std::string text = to_toml(common);
  for (const TableOverride& o : config.table_overrides) text += "--set " + o.text + "\n";
  if (!config.planner.plan.empty()) text += "planner.plan is given\n";
  if (!options.load.empty()) text += cat("--load is given, --new-data ", options.new_data, '\n');
  if (!options.start.empty()) text += "--start is given\n";
  if (!options.trace.empty()) text += "--trace is given\n";
  if (!options.save.empty()) {
    text += cat("--save-every ", options.save_every, "\n--save-every-minutes ", options.save_every_minutes, "\n--keep ",
                options.keep, "\n--resume ", options.resume, "\n--overwrite ", options.overwrite, '\n');
  }
  return text + (options.max_steps ? cat("--max-steps ", *options.max_steps, '\n') : "");
}

std::string first_difference(const std::string& job, const std::string& first_job) {
  std::istringstream mine(job), theirs(first_job);
  std::string section, x, y;
  while (true) {
    const bool has_x = static_cast<bool>(std::getline(mine, x)), has_y = static_cast<bool>(std::getline(theirs, y));
    if (!has_x && !has_y) return "";
    if (has_x && has_y && x == y) {
      if (!x.empty() && x[0] == '[') section = x + " ";
      continue;
    }
    return section + (has_x && !x.empty() ? x : "nothing") + " instead of " + (has_y && !y.empty() ? y : "nothing");
  }
}

void check_same_job(const ProcessGroup& group, const Config& config, const TrainJobOptions& options) {
  const std::string job = common_job(config, options);
  const std::vector<std::string> digests = group.all_gather_text(cat(fnv1a(job)), "job");
  bool same = true;
  for (const std::string& other : digests) same = same && other == digests[0];
  if (same) return;
  const std::vector<std::string> jobs = group.all_gather_text(job, "jobs");
  for (size_t rank = 1; rank < jobs.size(); ++rank) {
    const std::string difference = first_difference(jobs[rank], jobs[0]);
    if (difference.empty()) continue;
    throw Error(Code::kFailedPrecondition,
                cat("rank ", rank, " has another job than rank 0: ", difference,
                    "; start all ranks with the same config and options"),
                static_cast<int>(rank));
  }
}

}  // namespace tessera
