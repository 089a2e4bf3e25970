// Memory runs out in the server: for every k, the k-th allocation of its threads fails. Each request gets an answer or
// an error, and later ones are answered. (Small allocations of a connection are Asio's, which does not survive if all
// of them fail; in practice, large ones fail.)
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "running_server.h"

namespace {

// Allocations that succeed in threads that are not spared. Then one fails, or all do.
std::atomic<int64_t> left{1 << 30};
std::atomic<bool> always{false};
std::atomic<size_t> least{0};  // bytes: smaller allocations are not counted
thread_local bool spared = false;

void* allocate(size_t n) {
  if (!spared && n >= least) {
    const int64_t before = left--;
    if (before == 0 || (before < 0 && always)) throw std::bad_alloc();
  }
  if (void* p = std::malloc(n == 0 ? 1 : n)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t n) { return allocate(n); }
void* operator new[](size_t n) { return allocate(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace tessera::serve {
namespace {

using namespace std::chrono_literals;

// While this lives, the k-th allocation fails.
class Shortage {
 public:
  Shortage(int64_t k, bool for_good, size_t least_bytes = 0) {
    always = for_good;
    least = least_bytes;
    left = k;
  }
  ~Shortage() { end(); }
  bool came() const { return came_ || left < 0; }
  void end() {
    came_ = came();
    left = 1 << 30;
  }

 private:
  bool came_ = false;
};

struct Told {
  std::atomic<bool> done{false};
  Code code = Code::kOk;
  float score = 0;
};

Sample sample_of(size_t i) { return {{static_cast<float>(i), 0}, {1}, {2}, {}}; }

TEST(Memory, TheBatcherAnswersOrSaysSo) {
  spared = true;
  int refused = 0;
  for (const bool for_good : {false, true}) {
    bool came = true;
    for (int64_t k = 0; came; ++k) {
      Metrics metrics;
      const auto model = std::make_shared<FakePredictor>();
      Batcher batcher({.max_batch = 64, .max_queue = 100}, metrics);
      std::array<Told, 6> told;
      const auto submit = [&](size_t i) {
        const Message message(std::vector<Sample>(i + 1, sample_of(i)));
        Job job{parse_infer(model->model(), message.json(), std::nullopt), model, Clock::now() + 60s,
                [&told, i](const InferRequest&, const Answer& answer) {
                  told[i].code = answer.code;
                  if (answer.code == Code::kOk) told[i].score = answer.outputs[0][0];
                  told[i].done = true;
                }};
        ASSERT_TRUE(batcher.submit(std::move(job)));
      };
      model->hold();
      submit(0);
      ASSERT_TRUE(model->wait_for_calls(1));
      for (size_t i = 1; i < told.size(); ++i) submit(i);
      Shortage shortage(k, for_good);
      model->let_go();
      batcher.stop();
      shortage.end();
      came = shortage.came();
      for (size_t i = 0; i < told.size(); ++i) {
        ASSERT_TRUE(told[i].done) << "request " << i << ", allocation " << k;
        if (told[i].code == Code::kOk) {
          EXPECT_EQ(told[i].score, Message({sample_of(i)}).scores()[0]);
        } else {
          EXPECT_EQ(told[i].code, Code::kResourceExhausted);
          ++refused;
        }
      }
      ASSERT_LT(k, 1000);
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Memory, TheServerAnswersOrSaysSo) {
  spared = true;
  RunningServer server({.service = {.deadline = 300ms}});
  const Message message({{{0.5f, -1.25f}, std::vector<int64_t>(20000, 123), {7}, {}}});
  const std::string request = Client::post(kInfer, message.json());
  int refused = 0;
  bool came = true;
  for (int64_t k = 0; came; ++k) {
    Shortage shortage(k, false, 8192);
    const Reply reply = Client(server.port()).ask(request);
    shortage.end();
    came = shortage.came();
    // 0: the connection had no buffer to read with, and is closed.
    EXPECT_TRUE(reply.status == 200 || reply.status == 503 || reply.status == 0) << reply.status << " at " << k;
    if (reply.status == 503) {
      ++refused;
      EXPECT_EQ(nlohmann::json::parse(reply.body)["error"],
                "there is not enough memory for this request: ask again later");
    }
    const Reply next = Client(server.port()).ask(request);
    ASSERT_EQ(next.status, 200) << "after allocation " << k << ": " << next.body;
    ASSERT_LT(k, 1000);
  }
  EXPECT_GT(refused, 3);
}

}  // namespace
}  // namespace tessera::serve
