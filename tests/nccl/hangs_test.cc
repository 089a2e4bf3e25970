// Tests the transport when NCCL calls do not return: every wait ends, and the other ranks are told before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "fake_nccl.h"
#include "group.h"

namespace tessera::nccl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kPatience_s = 0.2;
constexpr std::chrono::seconds kSoon{10};  // far longer than every wait of these tests, on any machine

struct DoneWork final : sdk::Work {
  void wait() override {}
};

// A side channel of one rank, which records what the others would be told.
struct Told {
  std::atomic<int> aborts{0};
};
class AloneGroup final : public sdk::Group {
 public:
  explicit AloneGroup(Told& told) : told_(told) {}
  int32_t rank() const override { return 0; }
  int32_t world_size() const override { return 1; }
  std::unique_ptr<sdk::Group> split(int32_t, int32_t, const sdk::CollectiveCall&) override {
    return std::make_unique<AloneGroup>(told_);
  }
  sdk::Work* all_to_all_v(const DLTensor&, sdk::Counts, const DLTensor&, sdk::Counts,
                          const sdk::CollectiveCall&) override {
    return new DoneWork;
  }
  sdk::Work* all_reduce(const DLTensor&, int32_t, const sdk::CollectiveCall&) override { return new DoneWork; }
  sdk::Work* reduce_scatter_v(const DLTensor&, sdk::Counts, const DLTensor&, int32_t,
                              const sdk::CollectiveCall&) override {
    return new DoneWork;
  }
  sdk::Work* all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts,
                          const sdk::CollectiveCall&) override {
    std::memcpy(recv.data, send.data, static_cast<size_t>(sdk::numel(send) * sdk::element_bytes(send)));
    return new DoneWork;
  }
  sdk::Work* broadcast(const DLTensor&, int32_t, const sdk::CollectiveCall&) override { return new DoneWork; }
  sdk::Work* barrier(const sdk::CollectiveCall&) override { return new DoneWork; }
  void abort(const char*) noexcept override { ++told_.aborts; }
  void status() const override {}
  uint64_t bytes_sent() const override { return 0; }
  int32_t host_of(int32_t) const override { return 0; }

 private:
  Told& told_;
};
struct AloneCollective : sdk::Collective {
  explicit AloneCollective(const sdk::Setup&) {}
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous&) override { return nullptr; }
};

class Hangs : public testing::Test {
 protected:
  ~Hangs() override {
    fake_nccl().split_hangs = false;
    fake_nccl().abort_hangs = false;
    const auto deadline = Clock::now() + kSoon;
    while (fake_nccl().open > 0 && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(fake_nccl().open, 0);
  }
  std::unique_ptr<Side> side() {
    sdk::Group* group = new AloneGroup(told);
    return std::make_unique<Side>(AloneCollective::table<AloneCollective>, reinterpret_cast<tsr_group*>(group));
  }
  std::unique_ptr<NcclGroup> group() {
    auto alone = side();
    auto communicator = Communicator::connect(*alone, 5, kPatience_s);
    GroupOptions options{.timeout_s = 0.2};
    return std::make_unique<NcclGroup>(std::move(alone), std::move(communicator), options);
  }

  Told told;
};

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const sdk::Failure& failure) {
    return failure.what();
  }
  return "no failure";
}

TEST_F(Hangs, ASplitThatDoesNotEndLeavesNothingOpen) {
  auto alone = side();
  auto communicator = Communicator::connect(*alone, 5, kPatience_s);
  fake_nccl().split_hangs = true;
  EXPECT_THAT(failure_of([&] { communicator->split(0, 0, 0.1); }), HasSubstr("cannot split: not all ranks came"));
  // The parent also took part in the split.
  EXPECT_THAT(failure_of([&] { communicator->enqueue([](ncclComm_t) {}, after(1)); }), HasSubstr("cannot split"));
  EXPECT_EQ(fake_nccl().open, 0);
}

TEST_F(Hangs, ASplitThatDoesNotEndEndsTheGroup) {
  auto whole = group();
  fake_nccl().split_hangs = true;
  EXPECT_THAT(failure_of([&] { whole->split(0, 0, sdk::named_call("split")); }),
              HasSubstr("nccl: cannot split: not all ranks came in time"));
  EXPECT_EQ(told.aborts, 2);  // by the group's side channel and the watch's
  EXPECT_THAT(failure_of([&] { whole->barrier({}); }), HasSubstr("cannot split"));
}

TEST_F(Hangs, TheOthersAreToldBeforeAnAbortThatDoesNotReturn) {
  auto whole = group();
  fake_nccl().abort_hangs = true;
  const auto start = Clock::now();
  std::thread aborting([&] { whole->abort("enough"); });
  while (told.aborts < 2 && Clock::now() < start + kSoon) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(told.aborts, 2);
  aborting.join();
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_THAT(failure_of([&] { whole->barrier({}); }),
              AllOf(HasSubstr("nccl: aborted by this rank: enough; ncclCommAbort did not return within 0.2 s"),
                    HasSubstr("end this process")));
  whole.reset();
  EXPECT_EQ(fake_nccl().open, 1);  // left to the abort
}

TEST_F(Hangs, AGroupIsClosedWithoutAnAbortThatReturns) {
  auto whole = group();
  fake_nccl().abort_hangs = true;
  const auto start = Clock::now();
  whole.reset();
  EXPECT_LT(Clock::now() - start, kSoon);
}

}  // namespace
}  // namespace tessera::nccl
