#include "planner/system_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/test_directory.h"
#include "tessera/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr const char* kUnlimited = "9223372036854771712\n";  // cgroup v1's text for no limit

// A machine with 64 GiB of memory, 50 of them available, and the files that a test writes.
class SystemMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        1024 kB\nMemAvailable:   52428800 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void group(const std::string& path, const std::string& limit, int64_t used, int64_t dropped) {
    write(path + "/memory.max", limit + "\n");
    write(path + "/memory.current", str_cat(used, "\n"));
    write(path + "/memory.stat", str_cat("anon ", used - dropped, "\nfile 7\ninactive_file ", dropped, "\n"));
  }
  void group_v1(const std::string& path, const std::string& limit, int64_t used, int64_t dropped) {
    write(path + "/memory.limit_in_bytes", limit);
    write(path + "/memory.usage_in_bytes", str_cat(used, "\n"));
    write(path + "/memory.stat", str_cat("inactive_file 3\ntotal_inactive_file ", dropped, "\n"));
  }
  SystemMemory memory() const { return system_memory(root_.string()); }
  std::string at(const std::string& path) const { return "control group " + (root_ / path).string(); }
  const test::TestDirectory directory_;
  const fs::path root_ = directory_.path();
};

TEST_F(SystemMemoryTest, WithoutGroupsItIsTheMachines) {
  EXPECT_EQ(memory().limit, 64 * kGiB);
  EXPECT_EQ(memory().available, 50 * kGiB);
  EXPECT_EQ(memory().bound_by, "this machine");
  write("proc/meminfo", "MemTotal:       67108864 kB\n");
  EXPECT_EQ(memory().available, 64 * kGiB);
  write("proc/meminfo", "");
  EXPECT_THROW(memory(), Error);
}

TEST_F(SystemMemoryTest, TheLeastOfAllGroupsAround) {
  write("proc/self/cgroup", "0::/slice/job.scope/step\n");
  write("proc/self/mountinfo",
        "24 23 0:22 / /proc rw - proc proc rw\n"
        "35 24 0:29 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  group("sys/fs/cgroup/slice/job.scope/step", "max", kGiB, 0);
  group("sys/fs/cgroup/slice/job.scope", str_cat(8 * kGiB), 3 * kGiB, kGiB);
  group("sys/fs/cgroup/slice", str_cat(9 * kGiB), 8 * kGiB, 0);
  group("sys/fs/cgroup/slice/other", str_cat(kGiB), 0, 0);
  EXPECT_EQ(memory().limit, 8 * kGiB);
  EXPECT_EQ(memory().available, kGiB);
  EXPECT_EQ(memory().bound_by, at("sys/fs/cgroup/slice"));
  group("sys/fs/cgroup/slice", "max", 8 * kGiB, 0);
  EXPECT_EQ(memory().available, 6 * kGiB);  // 2 of 8 GiB are used, without files that can be dropped
  EXPECT_EQ(memory().bound_by, at("sys/fs/cgroup/slice/job.scope"));
  group("sys/fs/cgroup/slice/job.scope", str_cat(8 * kGiB), 9 * kGiB, 0);
  EXPECT_EQ(memory().available, 0);
}

TEST_F(SystemMemoryTest, VersionOneToo) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/elsewhere\n4:hugetlb,memory:/job/step\n0::/\n");
  write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,hugetlb,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  group_v1("sys/fs/cgroup/memory", kUnlimited, 60 * kGiB, 0);
  EXPECT_EQ(memory().limit, 64 * kGiB);
  EXPECT_EQ(memory().bound_by, "this machine");
  group_v1("sys/fs/cgroup/memory/job/step", kUnlimited, kGiB, 0);
  group_v1("sys/fs/cgroup/memory/job", str_cat(4 * kGiB), 2 * kGiB, kGiB);
  EXPECT_EQ(memory().limit, 4 * kGiB);
  EXPECT_EQ(memory().available, 3 * kGiB);
  EXPECT_EQ(memory().bound_by, at("sys/fs/cgroup/memory/job"));
}

// With Docker on v1, the path is the host's, but only the container's group is mounted. On v2, the path may lead out of
// the groups that the process sees.
TEST_F(SystemMemoryTest, InsideAContainer) {
  write("proc/self/cgroup", "4:memory:/docker/abc/nested\n");
  write("proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n");
  group_v1("sys/fs/cgroup/memory", str_cat(2 * kGiB), 0, 0);
  EXPECT_EQ(memory().limit, 2 * kGiB);
  group_v1("sys/fs/cgroup/memory/nested", str_cat(kGiB), 0, 0);
  EXPECT_EQ(memory().limit, kGiB);
  for (const char* path : {"/", "/..", "/../other"}) {
    write("proc/self/cgroup", str_cat("0::", path, "\n"));
    write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    group("sys/fs/cgroup", str_cat(3 * kGiB), 0, 0);
    EXPECT_EQ(memory().limit, 3 * kGiB) << path;
  }
}

TEST_F(SystemMemoryTest, OfThisMachine) {
  const SystemMemory here = system_memory();
  EXPECT_GT(here.available, 0);
  EXPECT_LE(here.available, here.limit);
  EXPECT_FALSE(here.bound_by.empty());
}

}  // namespace
}  // namespace tessera
