// emulator/block.h - runs the threads of a block on one OS thread. Internal to the emulator.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/device.h"
#include "emulator/fiber.h"

namespace emulator {

struct Launch {
  std::string kernel;
  dim3 grid, block;
  size_t shared_bytes = 0;
  std::function<void()> body;
};

inline constexpr int kMaxThreads = 1024;
inline constexpr size_t kSharedBytes = size_t{48} << 10;

// Runs one block at a time. Its fibers and its shared memory are reused for the next block.
class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Runs the block to its end on the calling OS thread. Returns "", or a sentence that describes the error.
  std::string run(const Launch& launch, dim3 index, int warp_size, uint64_t seed);

  // The block that runs on the calling OS thread; implements device.h for its threads.
  static Block& current();
  const Indices& indices() const { return running_->indices; }
  void* shared_memory(const void* key, size_t bytes, size_t alignment);
  void* dynamic_shared_memory() { return arena_; }
  void sync_block(const Where& where);
  Table exchange(uint64_t value, int width, const Where& where);
  int warp_size() const { return warp_size_; }

 private:
  enum class State { kReady, kAtBarrier, kAtExchange, kReturned };

  // Lanes that exchange values: an aligned group of a warp.
  struct Group {
    uint64_t arrived = 0;
    uint64_t generation = 0;
  };
  struct Warp {
    std::array<Group, 128> groups;                      // group g of width w: w + g, as in a heap
    std::array<std::array<uint64_t, 64>, 2> values[7];  // indexed by log2 of the width; used in turn
  };
  struct Thread {
    Block* owner = nullptr;
    size_t number = 0;
    Fiber fiber;
    Indices indices;
    int lane = 0;
    State state = State::kReturned;
    Group* group = nullptr;
    uint64_t generation = 0;  // of the barrier or group that it waits for
    Where where;
  };

  static void thread_main(void* thread);
  void begin(const Launch& launch, dim3 index, uint64_t seed);
  void follow_waiting_threads();
  void order_threads(uint64_t seed);
  void clean_shared_memory();
  void check_red_zones();
  bool can_run(const Thread& thread) const;
  void go_on();  // called by a thread that must wait: another thread runs, or run() does
  void give_up(std::string why);
  std::string stuck() const;

  const Launch* launch_ = nullptr;
  dim3 index_;
  int warp_size_ = 32;
  size_t count_ = 0, begun_ = 0, returned_ = 0, at_barrier_ = 0, scan_ = 0;
  uint64_t barrier_generation_ = 0;
  Where barrier_where_;
  std::string error_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<uint32_t> order_;
  std::vector<Warp> warps_;
  Fiber home_;
  Thread* running_ = nullptr;

  struct Piece {
    const void* key;
    size_t offset, bytes;
  };
  std::array<Piece, 64> pieces_;
  size_t num_pieces_ = 0;
  size_t used_ = 0;  // bytes used of the arena
  char* arena_ = nullptr;
};

}  // namespace emulator
