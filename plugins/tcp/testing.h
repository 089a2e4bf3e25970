// Helpers for the tests of this folder: a host that keeps the log, and ranks as threads.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tcp.h"

namespace tessera::tcp {

class TestHost {
 public:
  TestHost() {
    raw_.struct_size = sizeof(raw_);
    raw_.self = this;
    raw_.log = [](const tsr_host* host, int32_t, const char* text) {
      auto* self = static_cast<TestHost*>(host->self);
      const std::lock_guard lock(self->mutex_);
      self->log_ += std::string(text) + "\n";
    };
  }
  sdk::Host host() const { return sdk::Host(&raw_); }
  std::string log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  tsr_host raw_{};
  mutable std::mutex mutex_;
  std::string log_;
};

inline Fd bound_socket(uint16_t port, bool listening) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return Fd();
  if (listening && listen(fd.get(), 16) != 0) return Fd();
  return fd;
}

// Finds a free port outside the range from which the system assigns ports.
inline uint16_t free_port() {
  std::random_device random;
  while (true) {
    const uint16_t port = static_cast<uint16_t>(20000 + random() % 12000);
    if (bound_socket(port, false)) return port;
  }
}

struct Where {
  int world_size = 1;
  uint16_t port = free_port();
  std::string token = "a token";
  double timeout_s = 20;
  std::string options = "{}";
};

// The rendezvous of rank `rank` of `world`, all on one machine.
inline tsr_rendezvous rendezvous_of(int rank, int world, int port, const char* address, const char* token,
                                    double timeout_s) {
  tsr_rendezvous rendezvous{};
  rendezvous.struct_size = sizeof(rendezvous);
  rendezvous.rank = rendezvous.local_rank = rank;
  rendezvous.world_size = rendezvous.local_world_size = world;
  rendezvous.device = {kDLCPU, 0};
  rendezvous.master_port = port;
  rendezvous.master_addr = address;
  rendezvous.token = token;
  rendezvous.timeout_s = timeout_s;
  return rendezvous;
}

inline std::unique_ptr<sdk::Group> connect(TestHost& host, const Where& where, int rank) {
  sdk::Options options(where.options);
  Tcp tcp(sdk::Setup{host.host(), options, nullptr});
  return tcp.connect(
      rendezvous_of(rank, where.world_size, where.port, "127.0.0.1", where.token.c_str(), where.timeout_s));
}

// The exception that a rank's function threw: none, or code and text.
struct Outcome {
  tsr_code code = TSR_OK;
  std::string text;
};

// Runs `body` as ranks [0, world_size) in threads.
inline std::vector<Outcome> in_threads(const Where& where, const std::function<void(int rank)>& body) {
  std::vector<Outcome> outcomes(where.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < where.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const sdk::Failure& failure) {
        outcomes[rank] = {failure.code(), failure.what()};
      } catch (const std::exception& e) {
        outcomes[rank] = {TSR_UNKNOWN, e.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Does the same with connected groups. Fails the test if a rank throws.
inline void with_groups(int world_size, const std::function<void(sdk::Group&)>& body,
                        const std::string& options = "{}") {
  TestHost host;
  Where where{.world_size = world_size, .options = options};
  for (const Outcome& outcome : in_threads(where, [&](int rank) { body(*connect(host, where, rank)); })) {
    EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
  }
}

template <class T>
class View {
 public:
  explicit View(std::vector<T>& data) : size_(static_cast<int64_t>(data.size())) {
    tensor_ = {data.data(), {kDLCPU, 0}, 1, sdk::dtype_of<T>(), &size_, nullptr, 0};
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  operator const DLTensor&() const { return tensor_; }

 private:
  int64_t size_;
  DLTensor tensor_;
};

inline sdk::CollectiveCall call(const char* label = nullptr, double timeout_s = 0) {
  return sdk::named_call(label, timeout_s);
}

using sdk::finish;

// Each rank sends `count` numbers to each other rank, which must receive them intact.
inline void exchange(sdk::Group& group, size_t count, double timeout_s = 0) {
  const auto world = static_cast<size_t>(group.world_size());
  std::vector<int32_t> sent(world * count), got(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int32_t>(i) + 7 * group.rank();
  const std::vector<int64_t> counts(world, static_cast<int64_t>(count));
  finish(group.all_to_all_v(View<int32_t>(sent), counts, View<int32_t>(got), counts, call("rows", timeout_s)));
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t from = i / count, expected = static_cast<size_t>(group.rank()) * count + i % count + 7 * from;
    ASSERT_EQ(got[i], static_cast<int32_t>(expected)) << "from rank " << from;
  }
}

}  // namespace tessera::tcp
