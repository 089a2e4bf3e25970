#include "train/same_job.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "config/fnv1a.h"
#include "data/test_split.h"
#include "tessera/error.h"

namespace tessera {

std::string common_job(const Config& config, const TrainJobOptions& options) {
  Config common = config;
  common.plugins = {};
  common.job.threads = 0;
  common.planner.plan.clear();
  common.data.path.clear();
  common.data.test_path.clear();
  if (!test_file(config.data).empty()) common.data.test = "file:";
  common.report.json.clear();
  common.publish.directory = config.publish.directory.empty() ? "" : "given";
  std::string text = to_toml(common);
  for (const TableOverride& o : config.table_overrides) text += "--set " + o.text + "\n";
  const auto option = [&](bool given, const std::string& line) { text += (given ? line : "") + "\n"; };
  option(!config.planner.plan.empty(), "planner.plan FILE");
  option(!options.load.empty(), "--load DIR");
  option(options.new_data, "--new-data");
  option(!options.start.empty(), "--start DIR");
  option(!options.trace.empty(), "--trace FILE");
  option(!options.save_best.empty(), "--save-best DIR");
  const bool saves = !options.save.empty();
  option(saves, "--save DIR");
  option(saves && options.resume, "--resume");
  option(saves && options.overwrite, "--overwrite");
  option(saves, str_cat("--save-every ", options.save_every));
  option(saves, str_cat("--save-every-minutes ", options.save_every_minutes));
  option(saves, str_cat("--save-full-every ", options.save_full_every));
  option(saves, str_cat("--keep ", options.keep));
  option(options.max_steps.has_value(), str_cat("--max-steps ", options.max_steps.value_or(0)));
  return text;
}

std::string first_difference(const std::string& job, const std::string& first_job) {
  std::istringstream mine(job), theirs(first_job);
  std::string section, name, x, y;
  while (true) {
    const bool has_x = static_cast<bool>(std::getline(mine, x)), has_y = static_cast<bool>(std::getline(theirs, y));
    if (!has_x && !has_y) return "";
    if (has_x && has_y && x == y) {
      if (x.starts_with('[')) section = x + " ", name.clear();
      if (section.starts_with("[[") && x.starts_with("name = ")) name = x + ": ";
      continue;
    }
    if (x.starts_with("--") || y.starts_with("--")) section.clear(), name.clear();
    return section + name + (has_x && !x.empty() ? x : "nothing") + " instead of " +
           (has_y && !y.empty() ? y : "nothing");
  }
}

void check_same_job(const ProcessGroup& group, const Config& config, const TrainJobOptions& options) {
  const std::string job = common_job(config, options);
  const std::vector<uint64_t> digests = group.all_gather(fnv1a(job), "job");
  if (std::count(digests.begin(), digests.end(), digests[0]) == std::ssize(digests)) return;
  const std::vector<std::string> jobs = group.all_gather_text(job, "jobs");
  for (size_t rank = 1; rank < jobs.size(); ++rank) {
    const std::string difference = first_difference(jobs[rank], jobs[0]);
    if (difference.empty()) continue;
    throw Error(Code::kFailedPrecondition,
                str_cat("rank ", rank, " has another job than rank 0: ", difference,
                        "; start all ranks with the same config and options"),
                static_cast<int>(rank));
  }
}

}  // namespace tessera
