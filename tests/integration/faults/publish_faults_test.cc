// A disk fails while a job publishes or a model is packed, at every call that changes a file. The existing publications
// can be followed to their end, and a model is complete or absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "failing_disk.h"
#include "small_job.h"
#include "tessera/error.h"
#include "tessera/online.h"
#include "tessera/runtime.h"
#include "tessera_program.h"

namespace tessera::test::publish_faults_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Case {
  int with;
};

class Faults : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
#ifdef TESSERA_TEST_SANITIZE
    GTEST_SKIP() << "sanitizers must be loaded first";
#endif
  }
  std::string config() const {
    return folder_.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 9}));
  }
  DiskFault fault(const std::string& under, int at) const {
    return {.under = under, .at = at, .with = GetParam().with};
  }
  bool may_end_well() const { return GetParam().with != kKilled; }

  TestDirectory folder_;
};

class PublishFaults : public Faults {
 protected:
  // Publishes a base, then a delta together with another base.
  Finished run(int fail_at) const {
    return run_program({tessera_path(), "train", "--config", config(), "--publish", published(), "--every", "1step",
                        "--max-steps", "2", "--set", "publish.base_every=1"},
                       60, [&] { preload(fault(published(), fail_at)); });
  }
  std::string published() const { return folder_.file("published"); }
  struct There {
    bool base;
    int64_t step;
  };
  // The publications after a number, and the last number.
  std::vector<There> behind(int64_t number, int64_t* last) const {
    std::vector<There> out;
    for (const fs::directory_entry& file : fs::directory_iterator(published())) {
      if (file.path().extension() != ".json") continue;
      const json content = json::parse(contents(file.path().string())).at("content");
      if (content.at("number") > number) out.push_back({content.at("kind") == "base", content.at("step")});
      *last = std::max<int64_t>(*last, content.at("number"));
    }
    return out;
  }
};

TEST_P(PublishFaults, LeaveWhatCanBeFollowedToItsEnd) {
  const Runtime runtime;
  ASSERT_EQ(run(0).status, 0);
  int failed = 0;
  int64_t last = 0;
  behind(0, &last);
  for (int call = 1; call < 400; ++call) {
    SCOPED_TRACE(str_cat("call ", call));
    const int64_t before = last;
    const Finished faulty = run(call);
    ModelFollower follower(runtime, published());
    for (const auto& [base, step] : behind(before, &last)) {
      EXPECT_THAT(faulty.output, Not(HasSubstr(str_cat("the publication of step ", step, " was not written"))));
      if (base) {
        EXPECT_THAT(faulty.output, Not(HasSubstr(str_cat("the base of step ", step, " was not written"))));
      }
    }
    ASSERT_EQ(follower.status().number, last) << faulty.output;
    ASSERT_THAT(follower.refusals(), IsEmpty()) << faulty.output;
    if (!has_struck(faulty.output)) {
      EXPECT_EQ(faulty.status, 0) << faulty.output;
      EXPECT_GT(last, before);
      break;
    }
    // If it cannot publish at all, it says so before the first step; later it goes on.
    const bool began = faulty.output.find("plan: ") != std::string::npos &&
                       faulty.output.find("cannot open " + published() + "/tessera.lock") == std::string::npos;
    if (may_end_well() && began) {
      EXPECT_EQ(faulty.status, 0) << faulty.output;
    }
    ++failed;
  }
  EXPECT_GT(failed, 50);
  EXPECT_LT(failed, 399);
}

class PackFaults : public Faults {
 protected:
  Finished pack(int fail_at) const {
    return run_program({tessera_path(), "quantize", "--load", folder_.file("saved"), "--save", model()}, 60,
                       [&] { preload(fault(model(), fail_at)); });
  }
  std::string model() const { return folder_.file("model"); }
};

TEST_P(PackFaults, LeaveNoModelOrAWholeOne) {
  ASSERT_EQ(run_tessera({"train", "--config", config(), "--save", folder_.file("saved"), "--max-steps", "1"}).status,
            0);
  int failed = 0;
  for (int call = 1; call < 200; ++call) {
    SCOPED_TRACE(str_cat("call ", call));
    const Finished faulty = pack(call);
    const bool is_there = fs::exists(model());
    if (faulty.status == 0) {
      EXPECT_TRUE(is_there) << faulty.output;
    }
    if (is_there) {
      succeed({"model", "inspect", model()});
    }
    fs::remove_all(model());
    succeed(pack(0));
    fs::remove_all(model());
    if (!has_struck(faulty.output)) break;
    ++failed;
  }
  EXPECT_GT(failed, 10);
  EXPECT_LT(failed, 199);
}

INSTANTIATE_TEST_SUITE_P(Some, PackFaults, testing::Values(Case{EIO}, Case{kKilled}));
INSTANTIATE_TEST_SUITE_P(Long, PublishFaults,
                         testing::Values(Case{EIO}, Case{kKilled}, Case{ENOSPC}, Case{EMFILE}, Case{EINTR},
                                         Case{kHalf}));
INSTANTIATE_TEST_SUITE_P(Long, PackFaults, testing::Values(Case{ENOSPC}, Case{EMFILE}, Case{EINTR}, Case{kHalf}));

}  // namespace
}  // namespace tessera::test::publish_faults_test
