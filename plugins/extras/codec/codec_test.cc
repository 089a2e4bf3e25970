// Tests every format: precision, number of bytes, NaN and infinity. Two ranks in threads test which bytes travel, which
// values stay exact, and error feedback.
#include <sys/socket.h>

#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include <tessera/sdk/pair_engine.h>

#include "codec.h"

namespace {

using namespace extras;

int failures = 0;
template <class... Parts>
void expect(bool holds, const Parts&... parts) {
  if (holds) return;
  ++failures;
  std::ostringstream out;
  (out << ... << parts);
  std::printf("%s\n", out.str().c_str());
}

std::vector<float> normal(int64_t n, float scale) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = draw(random);
  return out;
}

// Encodes and decodes; the bytes after both buffers must not change.
std::vector<float> there_and_back(const Encoding& encoding, const std::vector<float>& values) {
  constexpr size_t kGuard = 16;
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> wire(static_cast<size_t>(encoding.bytes(n)) + kGuard, 0xa5);
  encoding.encode(values.data(), n, wire.data());
  for (size_t i = 0; i < kGuard; ++i) expect(wire[wire.size() - 1 - i] == 0xa5, "encode writes past its bytes");
  std::vector<float> out(values.size() + kGuard, 7);
  encoding.decode(wire.data(), n, out.data());
  for (size_t i = 0; i < kGuard; ++i) expect(out[values.size() + i] == 7, "decode writes past its elements");
  out.resize(values.size());
  return out;
}

void formats_are_near() {
  for (const int64_t width : {0, 1, 2, 7, 64, 100}) {
    for (const int64_t n : {0, 1, 5, 64, 200, 641}) {
      const std::vector<float> values = normal(n, 3);
      expect(there_and_back({Format::kExact, width}, values) == values, "what is exact changes");
      const auto half = there_and_back({Format::kHalf, width}, values);
      const auto brain = there_and_back({Format::kBfloat16, width}, values);
      const Encoding int8(Format::kInt8, width);
      const auto bytes = there_and_back(int8, values);
      const int64_t row = width > 0 ? width : 64;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        const float x = values[at], size = std::abs(x);
        expect(std::abs(half[at] - x) <= size * 0x1p-11f + 1e-7f, "fp16 makes ", half[at], " of ", x);
        expect(std::abs(brain[at] - x) <= size * 0x1p-8f, "bf16 makes ", brain[at], " of ", x);
        float largest = 0;
        for (int64_t k = i / row * row; k < std::min(n, i / row * row + row); ++k)
          largest = std::max(largest, std::abs(values[static_cast<size_t>(k)]));
        expect(std::abs(bytes[at] - x) <= largest / 127 * 0.5001f, "int8 makes ", bytes[at], " of ", x,
               " in a row up to ", largest);
        expect(width != 1 || bytes[at] == x, "int8 in rows of one element changes them");
      }
      expect(int8.bytes(n) == (width == 1 ? 4 * n : n + 4 * ((n + row - 1) / row)), "int8 has ", int8.bytes(n),
             " bytes");
      expect(Encoding(Format::kHalf, width).bytes(n) == 2 * n, "fp16 has not two bytes");
    }
  }
}

void extremes_stay_what_they_are() {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Format format : {Format::kHalf, Format::kBfloat16, Format::kInt8}) {
    const Encoding encoding(format, 4);
    for (const float odd : {kInf, -kInf, kNan, -kNan}) {
      const auto out = there_and_back(encoding, {1, odd, 0, 2, 1, 2, 3, 4});
      expect(!std::isfinite(out[1]), "what is not finite arrives as ", out[1]);
      expect(std::abs(out[7] - 4) < 0.05f, "another row arrives as ", out[7], " and not 4");
    }
    for (const float zero : {0.0f, 1e-40f, -1e-44f}) {
      const auto out = there_and_back(encoding, {zero, zero, zero, zero});
      expect(std::abs(out[0]) <= 1e-7f, "0 arrives as ", out[0]);
    }
    for (const float large : {3e38f, -3e38f, 70000.0f}) {
      const float got = there_and_back(encoding, {large, 0, 0, 0})[0];
      const float want = format == Format::kHalf ? std::copysign(65504.0f, large) : large;
      expect(std::isfinite(got) && std::abs(got - want) <= std::abs(want) / 100, large, " arrives as ", got);
    }
  }
}

struct Link : SocketLink {
  static constexpr const char* kName = "sockets";
  using SocketLink::SocketLink;
};
struct Sockets final : PairGroup<Link> {
  using PairwiseGroup::PairwiseGroup;
  std::unique_ptr<Group> split(int32_t, int32_t, const CollectiveCall&) override { return nullptr; }
};
struct Transport : Collective {
  std::unique_ptr<Group> connect(const tsr_rendezvous&) override { return nullptr; }
};

// Two ranks as threads, each with a codec over sockets.
void on_two_ranks(const CodecRules& rules, const std::function<void(CodecGroup&)>& body) {
  int data[2], notices[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, data) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, notices) != 0) {
    return expect(false, "no sockets here");
  }
  const auto run = [&](int32_t rank) {
    PairEngineOptions<Link> options{.rank = rank, .links = {}, .names = {0, 1}};
    options.links.resize(2);
    options.links[static_cast<size_t>(1 - rank)] = Link(Fd(data[rank]), Fd(notices[rank]));
    Group* raw = new Sockets(std::move(options));
    CodecGroup group(InnerGroup(Collective::table<Transport>, reinterpret_cast<tsr_group*>(raw)), rules);
    body(group);
    finish(group.barrier(named_call("end")));
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

class View {
 public:
  explicit View(std::vector<float>& data) : size_(static_cast<int64_t>(data.size())) {
    tensor_ = {data.data(), {kDLCPU, 0}, 1, dtype_of<float>(), &size_, nullptr, 0};
  }
  View(const View&) = delete;
  operator const DLTensor&() const { return tensor_; }

 private:
  int64_t size_;
  DLTensor tensor_;
};

constexpr int64_t kDim = 16, kRows = 30;

// The values that rank `to` gets from rank `from`.
std::vector<float> piece(int32_t from, int32_t to) {
  std::vector<float> out = normal(kRows * kDim, 1);
  for (float& x : out) x += static_cast<float>(from + 2 * to);
  return out;
}

CollectiveCall call_of(uint32_t flags, uint64_t site) {
  CollectiveCall call = named_call("rows");
  call.flags = flags;
  call.site = site;
  call.row_elements = kDim;
  return call;
}

// Runs one all-to-all and returns what arrives from the other rank.
std::vector<float> exchange(Group& group, const CollectiveCall& call, uint64_t* sent = nullptr) {
  const int32_t me = group.rank();
  std::vector<float> send = piece(me, 0), recv(static_cast<size_t>(2 * kRows * kDim), 9);
  const std::vector<float> second = piece(me, 1);
  send.insert(send.end(), second.begin(), second.end());
  const std::vector<int64_t> counts(2, kRows * kDim);
  const uint64_t before = group.bytes_sent();
  const View from(send), to(recv);
  finish(group.all_to_all_v(from, counts, to, counts, call));
  if (sent != nullptr) *sent = group.bytes_sent() - before;
  const auto begin = [&](int32_t rank) { return recv.begin() + rank * kRows * kDim; };
  expect(std::vector<float>(begin(me), begin(me) + kRows * kDim) == piece(me, me), "a rank's own piece changes");
  return {begin(1 - me), begin(1 - me) + kRows * kDim};
}

double worst(const std::vector<float>& got, const std::vector<float>& want) {
  double out = 0;
  for (size_t i = 0; i < got.size(); ++i) out = std::max<double>(out, std::abs(got[i] - want[i]));
  return out;
}

void only_what_may_is_encoded() {
  const CodecRules rules{Format::kInt8, Format::kBfloat16, false};
  on_two_ranks(rules, [&](CodecGroup& group) {
    const std::vector<float> want = piece(1 - group.rank(), group.rank());
    uint64_t exact = 0, forward = 0, backward = 0;
    expect(exchange(group, call_of(TSR_CALL_FORWARD, 1), &exact) == want, "without leave, values change");
    const auto rows = exchange(group, call_of(TSR_CALL_FORWARD | TSR_CALL_LOSSY, 1), &forward);
    const auto gradients = exchange(group, call_of(TSR_CALL_BACKWARD | TSR_CALL_LOSSY, 2), &backward);
    expect(worst(rows, want) > 0 && worst(rows, want) < 0.05, "rows are off by ", worst(rows, want));
    expect(worst(gradients, want) > 0 && worst(gradients, want) < 0.04, "gradients are off by ",
           worst(gradients, want));
    const auto bytes = [&](uint32_t flags) {
      return static_cast<uint64_t>(rules.encoding(dtype_of<float>(), kDim, flags).bytes(kRows * kDim));
    };
    expect(bytes(TSR_CALL_FORWARD) == 4 * kRows * kDim, "bytes without leave");
    expect(bytes(TSR_CALL_FORWARD | TSR_CALL_LOSSY) == kRows * (kDim + 4), "bytes of int8");
    expect(exact - forward == bytes(0) - bytes(TSR_CALL_FORWARD | TSR_CALL_LOSSY), "rows save ", exact - forward);
    expect(exact - backward == bytes(0) - bytes(TSR_CALL_BACKWARD | TSR_CALL_LOSSY), "gradients save ",
           exact - backward);
  });
}

// The next step compensates for a step's error, so that the mean over steps becomes exact and does not keep an offset.
void errors_are_fed_back_by_site() {
  for (const bool feedback : {false, true}) {
    on_two_ranks({Format::kInt8, Format::kInt8, feedback}, [&](CodecGroup& group) {
      constexpr int kSteps = 64;
      const std::vector<float> want = piece(1 - group.rank(), group.rank());
      std::vector<float> mean(want.size()), first;
      for (int step = 0; step < kSteps; ++step) {
        const auto got = exchange(group, call_of(TSR_CALL_BACKWARD | TSR_CALL_LOSSY, 7));
        if (step == 0) first = got;
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += got[i] / kSteps;
        // Another call site has residuals of its own, so its first result is the first result of this site.
        const auto other =
            exchange(group, call_of(TSR_CALL_BACKWARD | TSR_CALL_LOSSY, 100 + static_cast<uint64_t>(step)));
        expect(other == first, "errors of another site are fed back");
      }
      const double off = worst(mean, want), once = worst(first, want);
      expect(feedback ? off < once / 20 : off > once / 2, "with feedback ", feedback, " the mean is off by ", off,
             ", a step by ", once);
    });
  }
}

void options_are_checked() {
  for (const char* wrong : {R"({"forward":"fp8"})", R"({"name":"half"})"}) {
    try {
      Options options(wrong);
      tsr_component component{};
      component.id = "sockets";
      component.api = &Collective::table<Transport>;
      const tsr_instance inner{&component, nullptr};
      Codec made(Setup{Host(nullptr), options, &inner});
      expect(false, wrong, " is taken");
    } catch (const Failure& failure) {
      expect(std::string(failure.what()).find("fp16, bf16 or int8") != std::string::npos, failure.what());
    }
  }
}

}  // namespace

int main() {
  formats_are_near();
  extremes_stay_what_they_are();
  only_what_may_is_encoded();
  errors_are_fed_back_by_site();
  options_are_checked();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
