// A job in a folder of its own, which is removed with the test, and the commands that tests run on it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera_program.h"

namespace tessera::test {

// `--set` before each of them.
inline Arguments settings(const std::vector<std::string>& keys) {
  Arguments out;
  for (const std::string& key : keys) out.insert(out.end(), {"--set", key});
  return out;
}

// Arguments that run a command in ranks which take this host for several.
inline Arguments on_hosts(int hosts, int ranks, const Arguments& command) {
  const std::string each = std::to_string(ranks / hosts);
  return Arguments{"launch",
                   "-n",
                   std::to_string(ranks),
                   "--",
                   "/bin/sh",
                   "-c",
                   "export LOCAL_WORLD_SIZE=" + each + " LOCAL_RANK=$((RANK % " + each + ")); exec \"$0\" \"$@\"",
                   tessera_path()} +
         command;
}

// Tests derive from it, or hold one.
class JobFile {
 public:
  JobFile() = default;
  explicit JobFile(const std::string& job) { folder_.write("job.toml", job); }

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string write(const std::string& name, const std::string& text) const { return folder_.write(name, text); }
  // Writes the job `text`, in which DIR/ is the folder, and returns its path.
  std::string write_job(std::string text) const {
    const std::string mark = "DIR/";
    for (size_t at = 0; (at = text.find(mark)) != std::string::npos;) text.replace(at, mark.size(), file(""));
    return write("job.toml", text);
  }
  std::string path() const { return file("job.toml"); }
  // The arguments that train it; without --nproc if `ranks` is 0.
  Arguments command(int ranks, const Arguments& more = {}) const {
    Arguments out = {"train", "--config", path(), "--set", "report.json=" + file("report.json")};
    if (ranks > 0) out.insert(out.end(), {"--nproc", std::to_string(ranks)});
    return out + more;
  }
  Finished train(int ranks, const Arguments& more = {}) const { return run_tessera(command(ranks, more)); }
  // The report of a job that has to succeed; ends the test otherwise.
  nlohmann::json trained(int ranks, const Arguments& more = {}, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) const {
    succeed(train(ranks, more), file, line);
    return report();
  }
  nlohmann::json report() const { return nlohmann::json::parse(contents(file("report.json"))); }

 protected:
  const TestDirectory folder_;
};

inline std::vector<double> losses_of(const nlohmann::json& report) {
  return report.at("losses").get<std::vector<double>>();
}

// The losses of `b` are the last losses of `a`.
inline void expect_same_losses(const nlohmann::json& a, const nlohmann::json& b, double relative = 1e-4) {
  const std::vector<double> want = losses_of(a), got = losses_of(b);
  ASSERT_FALSE(got.empty());
  ASSERT_LE(got.size(), want.size());
  for (size_t i = 0, first = want.size() - got.size(); i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[first + i]), relative * want[first + i]) << "step " << first + i;
}

}  // namespace tessera::test
