// Quality of a DLRM on real data, through the command line and the configs of configs/. Data sets are not in the
// repository. They are searched in TESSERA_TEST_DATA (a directory with a folder per set), then in ../shared/data next
// to the repository; MovieLens-100K also in data/, where the quickstart puts it. Without them: SKIPPED.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::datasets_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Mean and standard deviation over five seeds of another implementation of the same model, start values, optimizers
// and preparation (embedding dimension 16, bottom MLP 64-16, top MLP 64-32-1, row-wise Adagrad and Adagrad).
struct Baseline {
  const char* set;
  const char* needed_file;
  double auc, auc_sd;
  double logloss, logloss_sd;
};
constexpr Baseline kBaselines[] = {
    {"ml-100k", "ml-100k.inter", 0.7954, 0.0018, 0.5473, 0.0023},
    {"goodbooks", "expand.py", 0.7860, 0.0026, 0.5162, 0.0024},
    {"movielens-small", "meta.json", 0.7821, 0.0025, 0.5573, 0.0036},
    {"coupon", "meta.json", 0.8203, 0.0025, 0.5156, 0.0076},
    {"shoppers", "meta.json", 0.9351, 0.0004, 0.2247, 0.0005},
};
constexpr int kSeeds = 3;

// The set's folder; empty if it is not available.
std::string folder_of(const Baseline& b) {
  const char* given = std::getenv("TESSERA_TEST_DATA");
  const std::string source = TESSERA_SOURCE_DIR;
  for (const std::string& place : {std::string(given ? given : ""), source + "/../shared/data", source + "/data"}) {
    if (!place.empty() && fs::exists(fs::path(place) / b.set / b.needed_file)) return place + "/" + b.set;
  }
  return "";
}

class Datasets : public testing::TestWithParam<Baseline> {
 protected:
  // Trains once and returns the report's "test"; null, with a test failure, if that fails.
  json train(const std::string& data, int seed, int ranks, const Arguments& more = {}) {
    const std::string report = scratch_.file("report.json");
    const std::string config = str_cat(TESSERA_SOURCE_DIR "/configs/", GetParam().set, ".toml");
    std::vector<std::string> args = {"train", "--config", config, "--nproc", str_cat(ranks)};
    for (const std::string& change : {str_cat("job.seed=", seed), "data.path=" + data, "report.json=" + report}) {
      args.insert(args.end(), {"--set", change});
    }
    args.insert(args.end(), more.begin(), more.end());
    succeed(run_tessera(args, 600));
    return json::parse(contents(report)).at("test");
  }

  // The prepared form, if the set is stored in another.
  std::string prepared(const std::string& data) {
    if (!fs::exists(data + "/expand.py")) return data;
    std::string out = scratch_.file("expanded");
    succeed(run_program({"/usr/bin/env", "python3", data + "/expand.py", out}, 600));
    return out;
  }

  TestDirectory scratch_;
};

TEST_P(Datasets, MeanOverSeedsIsNoWorseThanTheBaseline) {
  const Baseline& b = GetParam();
  const std::string found = folder_of(b);
  if (found.empty()) GTEST_SKIP() << "no data: " << b.set << " is not in TESSERA_TEST_DATA or ../shared/data";
  const std::string data = prepared(found);
  ASSERT_FALSE(HasFailure());
  double auc = 0, logloss = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const json test = train(data, seed, 1);
    auc += test.at("auc").get<double>() / kSeeds;
    logloss += test.at("logloss").get<double>() / kSeeds;
  }
  std::printf("%-16s AUC %.4f (baseline %.4f +- %.4f)  logloss %.4f (baseline %.4f +- %.4f)\n", b.set, auc, b.auc,
              b.auc_sd, logloss, b.logloss, b.logloss_sd);
  EXPECT_GE(auc, b.auc - std::max(2 * b.auc_sd, 0.002));
  EXPECT_LE(logloss, b.logloss + std::max(2 * b.logloss_sd, 0.002));
}

class SmallDatasets : public Datasets {};

// Two ranks with sharded tables reach the quality of one.
TEST_P(SmallDatasets, TwoRanksReachTheSame) {
  const std::string found = folder_of(GetParam());
  if (found.empty()) GTEST_SKIP() << "no data: " << GetParam().set;
  const std::vector<std::string> short_run = {"--max-steps", "200"};
  const json one = train(found, 1, 1, short_run), two = train(found, 1, 2, short_run);
  EXPECT_NEAR(two.at("auc").get<double>(), one.at("auc").get<double>(), 1e-3);
  EXPECT_NEAR(two.at("logloss").get<double>(), one.at("logloss").get<double>(), 1e-3);
}

std::string name_of(const testing::TestParamInfo<Baseline>& info) {
  std::string name = info.param.set;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Real, Datasets, testing::ValuesIn(kBaselines), name_of);
INSTANTIATE_TEST_SUITE_P(Real, SmallDatasets, testing::Values(kBaselines[0], kBaselines[3]), name_of);

}  // namespace
}  // namespace tessera::test::datasets_test
