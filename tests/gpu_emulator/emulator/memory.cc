#include "emulator/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "emulator/fiber.h"

namespace emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr int kPattern = 0xA5;
constexpr size_t kRetired = 1024;

std::string sentence(size_t bytes, size_t offset, const Allocation& a) {
  return std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + " of an allocation of " +
         std::to_string(a.bytes());
}

const Memory* explained = nullptr;

void on_fault(int signal, siginfo_t* info, void*) {
  if (const char* why = explained->explain(info->si_addr); why != nullptr) {
    (void)!::write(STDERR_FILENO, why, std::strlen(why));
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);  // on return, the access faults again
}

}  // namespace

Allocation::Allocation(size_t bytes) : bytes_(bytes) {
  mapped_ = (bytes + kPage) / kPage * kPage;  // at least one byte after the end
  void* memory = ::mmap(nullptr, mapped_ + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<char*>(memory);
  forbid(begin_, mapped_);
}

Allocation::~Allocation() {
  permit(begin_, mapped_);
  ::munmap(begin_, mapped_ + kPage);
}

void Allocation::make_usable() {
  ::mprotect(begin_, mapped_, PROT_READ | PROT_WRITE);
  permit(begin_, mapped_);
  std::memset(begin_, kPattern, mapped_);
  forbid(begin_ + bytes_, mapped_ - bytes_);
  life_ = Life::kUsable;
}

bool Allocation::make_unusable() {
  permit(begin_ + bytes_, mapped_ - bytes_);
  const bool intact =
      std::all_of(begin_ + bytes_, begin_ + mapped_, [](char c) { return static_cast<unsigned char>(c) == kPattern; });
  forbid(begin_, mapped_);
  life_ = Life::kGone;
  ::mprotect(begin_, mapped_, PROT_NONE);
  ::madvise(begin_, mapped_, MADV_DONTNEED);
  return intact;
}

void Allocation::open() const {
  if (life_ == Life::kUsable) ::mprotect(begin_, mapped_, PROT_READ | PROT_WRITE);
}

void Allocation::close() const {
  if (life_ == Life::kUsable) ::mprotect(begin_, mapped_, PROT_NONE);
}

void Memory::begin_work(bool guarded) {
  if (!guarded) return;
  std::lock_guard lock(mutex_);
  if (working_++ > 0) return;
  for (const auto& [begin, allocation] : present_) allocation->open();
}

void Memory::end_work(bool guarded) {
  if (!guarded) return;
  std::lock_guard lock(mutex_);
  if (--working_ > 0) return;
  for (const auto& [begin, allocation] : present_) allocation->close();
}

void Memory::explain_faults() {
#if !defined(EMULATOR_ASAN)
  explained = this;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
#endif
}

const char* Memory::explain(const void* address) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  const char* at = static_cast<const char*>(address);
  const auto holds = [at](const Allocation& a) { return at >= a.begin() && at < a.begin() + a.bytes(); };
  for (const auto& gone : retired_) {
    if (holds(*gone)) return "emulator: device memory was touched after its free was reached in its stream\n";
  }
  auto after = present_.upper_bound(at);
  if (after == present_.begin()) return nullptr;
  const Allocation& a = *std::prev(after)->second;
  if (!holds(a)) return "emulator: memory was touched behind the end of a device allocation\n";
  if (a.life() == Allocation::Life::kUsable) return "emulator: the host touched device memory\n";
  return "emulator: device memory was touched before its allocation was reached in its stream\n";
}

std::shared_ptr<Allocation> Memory::allocate(size_t bytes, int device, size_t limit) {
  std::lock_guard lock(mutex_);
  if (bytes > limit || used_[device] > limit - bytes) return nullptr;
  auto made = std::make_shared<Allocation>(bytes);
  made->device = device;
  used_[device] += bytes;
  live_[made->begin()] = made;
  present_[made->begin()] = made;
  return made;
}

std::shared_ptr<Allocation> Memory::release(void* memory) {
  std::lock_guard lock(mutex_);
  auto found = live_.find(static_cast<const char*>(memory));
  if (found == live_.end()) return nullptr;
  std::shared_ptr<Allocation> gone = std::move(found->second);
  live_.erase(found);
  used_[gone->device] -= gone->bytes();
  return gone;
}

void Memory::retire(std::shared_ptr<Allocation> gone) {
  std::lock_guard lock(mutex_);
  present_.erase(gone->begin());
  retired_.push_back(std::move(gone));
  if (retired_.size() > kRetired) retired_.pop_front();
}

size_t Memory::used(int device) const {
  std::lock_guard lock(mutex_);
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

void* Memory::allocate_pinned(size_t bytes) {
  void* memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (memory == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  pinned_[static_cast<const char*>(memory)] = bytes;
  return memory;
}

bool Memory::free_pinned(void* memory) {
  {
    std::lock_guard lock(mutex_);
    if (pinned_.erase(static_cast<const char*>(memory)) == 0) return false;
  }
  std::free(memory);
  return true;
}

Memory::Place Memory::place(const void* memory, size_t bytes, std::string* wrong) const {
  const char* at = static_cast<const char*>(memory);
  std::lock_guard lock(mutex_);
  if (auto after = live_.upper_bound(at); after != live_.begin()) {
    const Allocation& a = *std::prev(after)->second;
    const size_t offset = static_cast<size_t>(at - a.begin());
    if (offset < a.bytes()) {
      if (bytes > a.bytes() - offset) *wrong = sentence(bytes, offset, a);
      return Place::kDevice;
    }
  }
  for (const auto& gone : retired_) {
    if (at >= gone->begin() && at < gone->begin() + gone->bytes()) {
      *wrong = "memory that was freed";
      return Place::kDevice;
    }
  }
  if (auto after = pinned_.upper_bound(at); after != pinned_.begin()) {
    const auto& [begin, size] = *std::prev(after);
    if (at < begin + size) return Place::kPinned;
  }
  return Place::kPageable;
}

}  // namespace emulator
