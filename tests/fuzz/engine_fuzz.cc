// The engine's frames: rank 0 of three runs operations over channels of the tcp transport; the input is what two peers
// send, as data and as notices. The first byte selects the operations, the next whether headers are made right.
#include <sys/socket.h>

#include "channel.h"
#include "fuzz.h"
#include "tcp.h"
#include "tessera/sdk/error.h"

namespace tessera::fuzz {
namespace {

using tcp::Fd;
using tessera::tcp::Channel;

constexpr int32_t kRanks = 3;
constexpr int64_t kFloats = 24;  // floats of a tensor; each rank has 8

struct Pair {
  Pair() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    near = Fd(ends[0]), far = Fd(ends[1]);
  }
  // Sends everything that the other side ever sends.
  void say(Input bytes) const {
    if (!bytes.empty() && ::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) std::abort();
    ::shutdown(far.get(), SHUT_WR);
  }
  Fd near, far;
};

struct OneGroup final : sdk::PairGroup<Channel> {
  using PairwiseGroup::PairwiseGroup;
  std::unique_ptr<sdk::Group> split(int32_t, int32_t, const sdk::CollectiveCall&) override { return nullptr; }
};

class Floats {
 public:
  explicit Floats(int64_t n) : values_(static_cast<size_t>(n), 1.0f), size_(n) {
    tensor_ = {values_.data(), {kDLCPU, 0}, 1, sdk::dtype_of<float>(), &size_, nullptr, 0};
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  operator const DLTensor&() const { return tensor_; }

 private:
  std::vector<float> values_;
  int64_t size_;
  DLTensor tensor_;
};

void operate(sdk::Group& group, uint8_t which) {
  static const std::vector<int64_t> kCounts(kRanks, kFloats / kRanks);
  const sdk::CollectiveCall call = sdk::named_call("fuzz", 0.05);
  const Floats all(kFloats), own(kFloats / kRanks), result(kFloats);
  switch (which % 6) {
    case 0:
      return sdk::finish(group.all_to_all_v(all, kCounts, result, kCounts, call));
    case 1:
      return sdk::finish(group.all_reduce(all, TSR_REDUCE_SUM, call));
    case 2:
      return sdk::finish(group.reduce_scatter_v(all, kCounts, own, TSR_REDUCE_MAX, call));
    case 3:
      return sdk::finish(group.all_gather_v(own, result, kCounts, call));
    case 4:
      return sdk::finish(group.broadcast(all, which / 6 % kRanks, call));
    default:
      return sdk::finish(group.barrier(call));
  }
}

// Sends one peer's data and notices from its share of the input.
void speak(Taker taker, bool right, const Pair& data, const Pair& notices) {
  std::vector<uint8_t> told;
  for (int n = taker.take<uint8_t>() % 4; n > 0; --n) {
    auto notice = taker.take<sdk::Notice>();
    if (right) notice.magic = sdk::Notice::kMagic;
    const Input bytes(reinterpret_cast<const uint8_t*>(&notice), sizeof(notice));
    told.insert(told.end(), bytes.begin(), bytes.end());
  }
  notices.say(told);
  data.say(taker.rest());
}

}  // namespace

void fuzz_engine(Input input) {
  Taker taker(input);
  const auto which = taker.take<uint8_t>(), right = taker.take<uint8_t>();
  const size_t half = taker.rest().size() / 2;
  std::vector<Pair> data(kRanks), notices(kRanks);
  for (size_t peer = 1; peer < kRanks; ++peer)
    speak(Taker(taker.take(peer == 1 ? half : taker.rest().size())), right % 2 == 1, data[peer], notices[peer]);
  sdk::PairEngineOptions<Channel> options{.rank = 0, .timeout_s = 0.05, .spin_us = 0, .links = {}, .names = {0, 1, 2}};
  options.links.emplace_back();
  for (size_t peer = 1; peer < kRanks; ++peer)
    options.links.emplace_back(tcp::Link{std::move(data[peer].near), std::move(notices[peer].near)},
                               tcp::SharedMemory(), true);
  try {
    OneGroup group(std::move(options));
    for (int i = 0; i < 3; ++i) operate(group, static_cast<uint8_t>(which >> i));
  } catch (const sdk::Failure& failure) {
    require(failure.code() != TSR_OK && *failure.what() != '\0', "a failure has a code and a sentence");
    for (const char* c = failure.what(); *c != '\0'; ++c)
      require(static_cast<unsigned char>(*c) >= 0x20 && *c != 0x7f, "what a peer says is printable");
  }
}

}  // namespace tessera::fuzz
