// Ranks of one host share memory: where, how it is proved, and what happens when they do not.
#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>

#include "shared_memory.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::HasSubstr;

constexpr size_t kRing = size_t{64} << 10;

int32_t partners(const sdk::Group& group) { return dynamic_cast<const Group&>(group).shares_memory_with(); }

void exchange(sdk::Group& group, int64_t each) {
  const int64_t world = group.world_size();
  std::vector<int32_t> sent(static_cast<size_t>(world * each)), got(sent.size(), -1);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = group.rank() * 1000000 + static_cast<int32_t>(i);
  const std::vector<int64_t> counts(static_cast<size_t>(world), each);
  finish(group.all_to_all_v(View<int32_t>(sent), counts, View<int32_t>(got), counts, call("ids")));
  for (size_t i = 0; i < got.size(); ++i) {
    const auto from = static_cast<int32_t>(i) / static_cast<int32_t>(each);
    ASSERT_EQ(got[i], from * 1000000 + group.rank() * each + static_cast<int32_t>(i) % each) << "at " << i;
  }
}

TEST(Shm, IsTheWayBetweenRanksOfOneHost) {
  with_groups(3, [](sdk::Group& group) {
    EXPECT_EQ(partners(group), 2);
    for (const int64_t each : {1, 1000, 700000}) exchange(group, each);
    EXPECT_EQ(partners(*group.split(0)), 2);
  });
}

TEST(Shm, CanBeSwitchedOff) {
  with_groups(
      3,
      [](sdk::Group& group) {
        EXPECT_EQ(partners(group), 0);
        exchange(group, 700000);
      },
      R"({"shm": false})");
}

// As where one of them cannot: that one uses sockets, the others share.
TEST(Shm, OneRankMayDoWithout) {
  for (const int without : {0, 1, 2}) {
    TestHost host;
    const Where where{.world_size = 3};
    for (const Outcome& outcome : in_threads(where, [&](int rank) {
           Where own = where;
           if (rank == without) own.options = R"({"shm": false})";
           const auto group = connect(host, own, rank);
           EXPECT_EQ(partners(*group), rank == without ? 0 : 1);
           exchange(*group, 100000);
         })) {
      EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
    }
  }
}

TEST(Shm, AnythingButABooleanIsRefused) {
  TestHost host;
  const Where where{.world_size = 1, .options = R"({"shm": 1})"};
  try {
    connect(host, where, 0);
    FAIL() << "shm: 1";
  } catch (const sdk::Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("shm"));
  }
}

TEST(Shm, LeavesNothingBehind) {
  const auto mapped = [] {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    int count = 0;
    while (std::getline(maps, line)) count += line.find("memfd:tessera") != std::string::npos;
    return count;
  };
  const auto files = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += std::filesystem::read_symlink(entry.path(), gone).string().find("memfd:") != std::string::npos;
    }
    return count;
  };
  with_groups(2, [&](sdk::Group& group) {
    exchange(group, 10);
    if (group.rank() == 0) {
      EXPECT_EQ(mapped(), 2);  // these ranks are one process
      EXPECT_EQ(files(), 0);   // a process that starts another does not hand it on
    }
    exchange(group, 10);
  });
  EXPECT_EQ(mapped(), 0);
}

TEST(SharedMemory, IsSealedAndPrivate) {
  Fd file;
  const SharedMemory memory = SharedMemory::make(kRing, &file);
  ASSERT_TRUE(memory);
  EXPECT_NE(ftruncate(file.get(), 0), 0);
  EXPECT_NE(ftruncate(file.get(), 1 << 20), 0);
  struct stat status;
  ASSERT_EQ(fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(SharedMemory, NothingElseIsTakenForIt) {
  Fd made;
  const SharedMemory memory = SharedMemory::make(kRing, &made);
  EXPECT_TRUE(SharedMemory::open(made, kRing));
  EXPECT_FALSE(SharedMemory::open(made, 2 * kRing));
  EXPECT_FALSE(SharedMemory::open(Fd(open("/dev/null", O_RDWR | O_CLOEXEC)), kRing));
  const Fd unsealed(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096 + 2 * kRing), 0);
  EXPECT_FALSE(SharedMemory::open(unsealed, kRing));
}

TEST(SharedMemory, EachEndReadsWhatTheOtherWrites) {
  Fd file;
  const SharedMemory lower = SharedMemory::make(kRing, &file), upper = SharedMemory::open(file, kRing);
  ASSERT_TRUE(lower && upper);
  for (const bool down : {false, true}) {
    RingWriter writer = (down ? upper : lower).writer(!down);
    RingReader reader = (down ? lower : upper).reader(down);
    char sent[] = "a few bytes", got[sizeof(sent)] = {};
    const iovec from{sent, sizeof(sent)}, to{got, sizeof(got)};
    EXPECT_EQ(writer.write(&from, 1), sizeof(sent));
    EXPECT_EQ(reader.read(&to, 1), sizeof(sent));
    EXPECT_STREQ(got, sent);
  }
}

}  // namespace
}  // namespace tessera::tcp
