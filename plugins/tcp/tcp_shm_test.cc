// Tests shared memory of ranks of one host: when it is used, how it is proved, and the fallback to sockets.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "channel.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::HasSubstr;

constexpr size_t kRing = size_t{64} << 10;

int32_t partners(const sdk::Group& group) { return dynamic_cast<const Group&>(group).shares_memory_with(); }

TEST(Shm, IsTheWayBetweenRanksOfOneHost) {
  with_groups(3, [](sdk::Group& group) {
    EXPECT_EQ(partners(group), 2);
    for (const int64_t each : {1, 1000, 700000}) exchange(group, each);
    EXPECT_EQ(partners(*group.split(0, 0, call())), 2);
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

// A rank that cannot share uses sockets, while the others share.
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

// Ranks in separate processes, whose memory is fetched from, for all_to_all_v and reductions of a few MiB.
TEST(Shm, LargePiecesWithAndWithoutSingleCopies) {
  for (const char* options : {"{}", R"({"single_copy": false})"}) {
    with_groups(
        3,
        [](sdk::Group& group) {
          for (int i = 0; i < 3; ++i) exchange(group, 400000);
          std::vector<float> data(3000000, static_cast<float>(group.rank() + 1));
          finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call("sum")));
          EXPECT_EQ(std::count(data.begin(), data.end(), 6.0f), 3000000);
        },
        options);
  }
}

TEST(Options, WhatCannotBeIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"shm": 1})", "option \"shm\" must be true or false"},
      {R"({"single_copy": "no"})", "option \"single_copy\" must be true or false"},
      {R"({"spin_us": -1})", "option \"spin_us\" must be between 0 and 1e9 us, not -1"},
  };
  TestHost host;
  for (const auto& [options, named] : cases) {
    try {
      connect(host, {.world_size = 1, .options = options}, 0);
      ADD_FAILURE() << options;
    } catch (const sdk::Failure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr(named));
    }
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
      EXPECT_EQ(files(), 0);   // not inherited by a process that this one starts
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
    EXPECT_EQ(writer.write(&from, 1, 100), sizeof(sent));
    EXPECT_EQ(reader.read(&to, 1, 100), sizeof(sent));
    EXPECT_STREQ(got, sent);
  }
}

TEST(Process, IsReadAsLongAsItShowsItsBadge) {
  Nonce badge = random_nonce();
  const std::string text = "what it knows";
  const Process self{getpid(), reinterpret_cast<uintptr_t>(&badge), badge};
  if (!self.shows_badge()) GTEST_SKIP() << "this kernel does not allow it";
  std::string got(text.size(), ' ');
  const iovec piece{got.data(), got.size()};
  EXPECT_EQ(self.read(&piece, 1, reinterpret_cast<uintptr_t>(text.data())), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(got, text);
  EXPECT_EQ(self.read(&piece, 1, 8), -1);  // there is nothing at this address
  badge = random_nonce();                  // as if another process had got its number
  EXPECT_FALSE(self.shows_badge());
  EXPECT_EQ(self.read(&piece, 1, reinterpret_cast<uintptr_t>(text.data())), -1);
  EXPECT_EQ(errno, ESRCH);
}

// Two ends in this process, connected like two ranks.
struct Ends {
  Channel lower, upper;
  Ends() {
    int data[2], control[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, data), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
    std::vector<Link> links[2];
    for (int rank : {0, 1}) {
      links[rank].resize(2);
      links[rank][1 - rank] = {Fd(data[rank]), Fd(control[rank])};
    }
    SharingOptions options{.hosts = {0, 0}, .names = {0, 1}, .deadline = Clock::now() + std::chrono::seconds(10)};
    std::vector<SharedMemory> first, second;
    std::thread other([&] { first = share_memory(links[0], options); });
    SharingOptions upper_options = options;
    upper_options.rank = 1;
    second = share_memory(links[1], upper_options);
    other.join();
    lends = second[0].lending.lends;
    lower = Channel(std::move(links[0][1]), std::move(first[1]), true);
    upper = Channel(std::move(links[1][0]), std::move(second[0]), false);
  }
  bool lends = false;
};

constexpr size_t kLarge = size_t{1} << 20;

TEST(Channel, WhatIsLentStaysUntilItWasFetched) {
  Ends ends;
  if (!ends.lends) GTEST_SKIP() << "this kernel does not allow it";
  std::vector<char> sent(kLarge, 'a'), got(kLarge);
  iovec from{sent.data(), sent.size()}, to{got.data(), got.size() / 2};
  EXPECT_EQ(ends.lower.send(&from, 1, &from), static_cast<ssize_t>(kLarge));
  EXPECT_FALSE(ends.lower.settled());
  pollfd bell{-1, 0, 0};
  EXPECT_TRUE(ends.lower.sleeps(Wake::kSettled, &bell));
  EXPECT_EQ(ends.upper.receive(&to, 1), static_cast<ssize_t>(kLarge / 2));
  EXPECT_FALSE(ends.lower.settled());
  to = {got.data() + kLarge / 2, kLarge};
  EXPECT_EQ(ends.upper.receive(&to, 1), static_cast<ssize_t>(kLarge / 2));
  EXPECT_TRUE(ends.lower.settled());
  EXPECT_EQ(got, sent);
  EXPECT_EQ(poll(&bell, 1, 1000), 1);
  ends.lower.wake(true);
  EXPECT_EQ(poll(&bell, 1, 0), 0);
}

// A rank that gives up may reuse its memory, so the other rank must not use what it fetches after that.
TEST(Channel, WhatWasRenouncedIsNotBelieved) {
  Ends ends;
  if (!ends.lends) GTEST_SKIP() << "this kernel does not allow it";
  std::vector<char> sent(kLarge, 'a'), got(kLarge);
  iovec from{sent.data(), sent.size()}, to{got.data(), got.size()};
  EXPECT_EQ(ends.lower.send(&from, 1, &from), static_cast<ssize_t>(kLarge));
  ends.lower.renounce();
  EXPECT_EQ(ends.upper.receive(&to, 1), -1);
  EXPECT_EQ(errno, ECANCELED);
}

TEST(Channel, BytesThatWereSentOutliveTheSender) {
  Ends ends;
  char sent[] = "last words", got[sizeof(sent)] = {};
  iovec from{sent, sizeof(sent)}, to{got, sizeof(got)};
  pollfd bell{-1, 0, 0};
  EXPECT_TRUE(ends.upper.sleeps(Wake::kData, &bell));
  EXPECT_EQ(ends.lower.send(&from, 1, nullptr), static_cast<ssize_t>(sizeof(sent)));
  ends.lower = Channel();
  ends.upper.wake(true);
  ends.upper.wake(true);
  EXPECT_TRUE(ends.upper.ended());
  EXPECT_EQ(ends.upper.receive(&to, 1), static_cast<ssize_t>(sizeof(sent)));
  EXPECT_STREQ(got, sent);
  EXPECT_EQ(ends.upper.receive(&to, 1), 0);
  EXPECT_EQ(ends.upper.send(&from, 1, nullptr), -1);
  EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace tessera::tcp
