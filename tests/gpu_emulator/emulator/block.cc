#include "emulator/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulator {
namespace {

constexpr int kPattern = 0xA5;
constexpr size_t kArenaBytes = 2 * kSharedBytes;  // includes the red zones between allocations
constexpr size_t kRedZone = 32;

thread_local Block* current_block = nullptr;

std::string text(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

std::string text(const Where& where) {
  const std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

uint64_t next_random(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

Block::Block() {
  arena_ = static_cast<char*>(
      ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (arena_ == MAP_FAILED) {
    std::perror("emulator: no memory for the shared memory of a block");
    std::abort();
  }
  std::memset(arena_, kPattern, kArenaBytes);
  forbid(arena_, kArenaBytes);
}

Block::~Block() {
  permit(arena_, kArenaBytes);
  ::munmap(arena_, kArenaBytes);
}

Block& Block::current() {
  if (current_block == nullptr) {
    std::fputs("emulator: device code was called outside a kernel\n", stderr);
    std::abort();
  }
  return *current_block;
}

std::string Block::run(const Launch& launch, dim3 index, int warp_size, uint64_t seed) {
  warp_size_ = warp_size;
  begin(launch, index, seed);
  current_block = this;
  home_.adopt_current_thread();
  release(&launch_);
  Thread& first = *threads_[order_[begun_++]];
  first.state = State::kReady;
  running_ = &first;
  home_.switch_to(first.fiber);
  acquire(&returned_);
  if (!error_.empty()) follow_waiting_threads();
  current_block = nullptr;
  running_ = nullptr;
  clean_shared_memory();
  if (error_.empty()) return {};
  for (auto& thread : threads_) thread->fiber.start(&Block::thread_main, thread.get());  // abandons stuck threads
  return std::exchange(error_, {});
}

// Their work before the wait happened earlier.
void Block::follow_waiting_threads() {
  acquire(&barrier_generation_);
  for (Warp& warp : warps_) {
    for (Group& group : warp.groups) acquire(&group);
  }
}

void Block::begin(const Launch& launch, dim3 index, uint64_t seed) {
  launch_ = &launch;
  index_ = index;
  count_ = size_t{launch.block.x} * launch.block.y * launch.block.z;
  begun_ = returned_ = at_barrier_ = scan_ = 0;
  while (threads_.size() < count_) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->owner = this;
    threads_.back()->number = threads_.size() - 1;
    threads_.back()->fiber.start(&Block::thread_main, threads_.back().get());
  }
  for (size_t i = 0; i < count_; ++i) {
    const unsigned n = static_cast<unsigned>(i);
    const dim3 at(n % launch.block.x, n / launch.block.x % launch.block.y, n / (launch.block.x * launch.block.y));
    Thread& t = *threads_[i];
    t.indices = {at, index, launch.block, launch.grid};
    t.lane = static_cast<int>(i) % warp_size_;
    t.state = State::kReturned;
  }
  warps_.resize((count_ + warp_size_ - 1) / warp_size_);
  for (Warp& warp : warps_) warp.groups.fill({});
  order_threads(seed);
  permit(arena_, launch.shared_bytes);
  used_ = (launch.shared_bytes + kRedZone + kRedZone - 1) / kRedZone * kRedZone;
  pieces_[0] = {nullptr, 0, launch.shared_bytes};
  num_pieces_ = 1;
}

void Block::order_threads(uint64_t seed) {
  order_.resize(count_);
  for (size_t i = 0; i < count_; ++i) order_[i] = static_cast<uint32_t>(i);
  if (seed == 0) return;
  uint64_t state = seed + index_.x * 0x9E3779B97F4A7C15u + index_.y * 0xC2B2AE3D27D4EB4Fu + index_.z;
  if (state == 0) state = 1;
  for (size_t i = count_ - 1; i > 0; --i) std::swap(order_[i], order_[next_random(state) % (i + 1)]);
}

// Finds, without AddressSanitizer, the errors that it would report at the line.
void Block::check_red_zones() {
  for (size_t i = 0; i < num_pieces_ && error_.empty(); ++i) {
    const size_t end = pieces_[i].offset + pieces_[i].bytes;
    const size_t next = i + 1 < num_pieces_ ? pieces_[i + 1].offset : used_;
    if (std::all_of(arena_ + end, arena_ + next, [](char c) { return static_cast<unsigned char>(c) == kPattern; })) {
      continue;
    }
    error_ = "block " + text(index_) + " of " + launch_->kernel + ": written behind the " +
             std::to_string(pieces_[i].bytes) + " bytes of " +
             (i == 0 ? "dynamic shared memory" : "a shared array, the number " + std::to_string(i) + " that was used");
  }
}

void Block::clean_shared_memory() {
  permit(arena_, used_);
  check_red_zones();
  std::memset(arena_, kPattern, used_);
  forbid(arena_, used_);
}

void Block::thread_main(void* argument) {
  auto* self = static_cast<Thread*>(argument);
  Block& block = *self->owner;
  for (;;) {
    acquire(&block.launch_);
    block.launch_->body();
    release(&block.returned_);
    self->state = State::kReturned;
    ++block.returned_;
    block.go_on();
  }
}

bool Block::can_run(const Thread& thread) const {
  switch (thread.state) {
    case State::kReady:
      return true;
    case State::kAtBarrier:
      return thread.generation != barrier_generation_;
    case State::kAtExchange:
      return thread.generation != thread.group->generation;
    case State::kReturned:
      return false;
  }
  return false;
}

void Block::go_on() {
  Thread* self = running_;
  if (error_.empty() && begun_ < count_) {
    Thread& next = *threads_[order_[begun_++]];
    next.state = State::kReady;
    running_ = &next;
    return self->fiber.switch_to(next.fiber);
  }
  if (!error_.empty() || returned_ == count_) return self->fiber.switch_to(home_);
  for (size_t k = 1; k <= count_; ++k) {
    const size_t at = (scan_ + k) % count_;
    Thread& next = *threads_[order_[at]];
    if (!can_run(next)) continue;
    scan_ = at;
    next.state = State::kReady;
    running_ = &next;
    if (&next != self) self->fiber.switch_to(next.fiber);
    return;
  }
  give_up(stuck());
}

void Block::give_up(std::string why) {
  if (error_.empty()) error_ = "block " + text(index_) + " of " + launch_->kernel + ": " + std::move(why);
  release(&returned_);
  running_->fiber.switch_to(home_);
}

std::string Block::stuck() const {
  size_t barrier = 0, exchange = 0;
  Where barrier_at, exchange_at;
  for (size_t i = 0; i < count_; ++i) {
    const Thread& t = *threads_[i];
    if (t.state == State::kAtBarrier && barrier++ == 0) barrier_at = t.where;
    if (t.state == State::kAtExchange && exchange++ == 0) exchange_at = t.where;
  }
  std::string out;
  if (barrier > 0) out += std::to_string(barrier) + " threads wait at the barrier of " + text(barrier_at);
  if (exchange > 0) {
    if (!out.empty()) out += ", ";
    out += std::to_string(exchange) + " threads wait for lanes of their group at " + text(exchange_at);
  }
  return out + ", which others never reach: " + std::to_string(returned_) + " of " + std::to_string(count_) +
         " threads have returned";
}

void Block::sync_block(const Where& where) {
  Thread& self = *running_;
  self.where = where;
  if (at_barrier_ == 0) {
    barrier_where_ = where;
  } else if (barrier_where_.line() != where.line() || std::strcmp(barrier_where_.file_name(), where.file_name()) != 0) {
    return give_up("threads wait at different barriers, " + text(barrier_where_) + " and " + text(where));
  }
  release(&barrier_generation_);
  if (++at_barrier_ == count_) {
    at_barrier_ = 0;
    ++barrier_generation_;
  } else {
    self.generation = barrier_generation_;
    self.state = State::kAtBarrier;
    go_on();
  }
  acquire(&barrier_generation_);
}

Table Block::exchange(uint64_t value, int width, const Where& where) {
  Thread& self = *running_;
  self.where = where;
  if (width < 1 || width > warp_size_ || !std::has_single_bit(static_cast<unsigned>(width))) {
    give_up("the width " + std::to_string(width) + " at " + text(where) + " is not a power of 2 up to the warp's " +
            std::to_string(warp_size_) + " lanes");
  }
  const size_t thread = self.number;
  const size_t warp_index = thread / warp_size_;
  Warp& warp = warps_[warp_index];
  const size_t lanes = std::min<size_t>(warp_size_, count_ - warp_index * warp_size_);
  const uint64_t present = lanes == 64 ? ~uint64_t{0} : (uint64_t{1} << lanes) - 1;
  const uint64_t wide = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  const uint64_t expected = present & (wide << (self.lane / width * width));
  Group& group =
      warp.groups[static_cast<size_t>(64) / static_cast<size_t>(width) + static_cast<size_t>(self.lane / width)];
  const uint64_t generation = group.generation;
  auto& values = warp.values[std::countr_zero(static_cast<unsigned>(width))][generation & 1];
  values[static_cast<size_t>(self.lane)] = value;
  group.arrived |= uint64_t{1} << self.lane;
  release(&group);
  if (group.arrived == expected) {
    group.arrived = 0;
    ++group.generation;
  } else {
    self.group = &group;
    self.generation = generation;
    self.state = State::kAtExchange;
    go_on();
  }
  acquire(&group);
  return {values.data(), present, self.lane};
}

void* Block::shared_memory(const void* key, size_t bytes, size_t alignment) {
  for (size_t i = 0; i < num_pieces_; ++i) {
    if (pieces_[i].key == key) return arena_ + pieces_[i].offset;
  }
  const size_t offset = (used_ + alignment - 1) / alignment * alignment;
  if (num_pieces_ == pieces_.size() || offset + bytes + kRedZone > kArenaBytes) {
    give_up("more than " + std::to_string(kSharedBytes) + " bytes of shared memory");
  }
  pieces_[num_pieces_++] = {key, offset, bytes};
  used_ = (offset + bytes + kRedZone + kRedZone - 1) / kRedZone * kRedZone;
  permit(arena_ + offset, bytes);
  return arena_ + offset;
}

// Defines the functions that device.h declares.

const Indices& indices() { return Block::current().indices(); }
void* shared_memory(const void* key, size_t bytes, size_t alignment) {
  return Block::current().shared_memory(key, bytes, alignment);
}
void* dynamic_shared_memory() { return Block::current().dynamic_shared_memory(); }
void sync_block(Where where) { Block::current().sync_block(where); }
void sync_warp(Where where) { exchange(0, warp_size(), where); }
Table exchange(uint64_t value, int width, Where where) { return Block::current().exchange(value, width, where); }

void fence_device() {
  static char all_fences = 0;  // ThreadSanitizer does not know fences, so each one follows all earlier ones
  release(&all_fences);
  acquire(&all_fences);
}

uint64_t ballot(bool predicate, Where where) {
  const Table table = exchange(predicate ? 1 : 0, warp_size(), where);
  uint64_t bits = 0;
  for (int i = 0; i < 64; ++i) {
    if ((table.present >> i & 1) != 0 && table.values[i] != 0) bits |= uint64_t{1} << i;
  }
  return bits;
}

}  // namespace emulator
