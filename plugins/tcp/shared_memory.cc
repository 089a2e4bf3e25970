#include "shared_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "tessera/sdk/pair_failures.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace tessera::tcp {
namespace {

constexpr uint64_t kMagic = 0x3130304d48535254;  // "TRSHM001"
constexpr size_t kStateBytes = 4096;
static_assert(sizeof(SharedState) <= kStateBytes);

// A rank's rings to all other ranks of its host have kAllRings bytes in all, within the bounds per ring.
constexpr size_t kAllRings = size_t{4} << 20;
constexpr size_t kLeastRing = size_t{32} << 10;
constexpr size_t kMostRing = size_t{1} << 20;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t file_bytes(size_t capacity) { return kStateBytes + 2 * capacity; }

// Sent by the lower rank: the place of its memory. Capacity 0 means that it offers none, and nothing follows.
struct Offer {
  uint64_t magic = kMagic;
  uint64_t capacity = 0;
  int32_t process = 0;
  int32_t file = -1;
  uint64_t badge_address = 0;
  Nonce nonce{};  // written in the memory, and badge of its process
};
// The answer of the higher rank.
struct Reply {
  uint32_t sees_it = 0;   // 1 if it has mapped the offered memory, and written `nonce` there
  uint32_t reads_it = 0;  // 1 if it can read the lower rank's process
  int32_t process = 0;
  int32_t reserved = 0;
  uint64_t badge_address = 0;
  Nonce nonce{};
};
// The lower rank's last message.
struct Verdict {
  uint32_t shared = 0;    // 1 if it found the nonce in the memory
  uint32_t reads_it = 0;  // 1 if it can read the higher rank's process
};

using Clock = std::chrono::steady_clock;

class Handshake {
 public:
  Handshake(const std::vector<Link>& links, const SharingOptions& options) : links_(links), options_(options) {}

  std::vector<SharedMemory> run() {
    const int32_t world = static_cast<int32_t>(links_.size());
    shared_.resize(links_.size());
    files_.resize(links_.size());
    offered_.resize(links_.size());
    for (int32_t peer = options_.rank + 1; peer < world; ++peer) offer(peer);
    for (int32_t peer = 0; peer < options_.rank; ++peer) answer(peer);
    for (int32_t peer = options_.rank + 1; peer < world; ++peer) judge(peer);
    for (int32_t peer = 0; peer < options_.rank; ++peer) obey(peer);
    return std::move(shared_);
  }

 private:
  size_t capacity() const {
    const auto here = std::count(options_.hosts.begin(), options_.hosts.end(), options_.hosts[at(options_.rank)]);
    return std::clamp(std::bit_floor(kAllRings / static_cast<size_t>(here)), kLeastRing, kMostRing);
  }

  void offer(int32_t peer) {
    Offer offer;
    if (options_.enabled && options_.hosts[at(peer)] == options_.hosts[at(options_.rank)]) {
      shared_[at(peer)] = SharedMemory::make(capacity(), &files_[at(peer)]);
    }
    if (shared_[at(peer)]) {
      offer.capacity = capacity();
      offer.process = getpid();
      offer.file = files_[at(peer)].get();
      offer.nonce = shared_[at(peer)].state().nonces[0] = random_nonce();
      offer.badge_address = show_badge(peer, offer.nonce);
    }
    tell(peer, offer);
  }

  void answer(int32_t peer) {
    const Offer offer = hear<Offer>(peer);
    if (offer.magic != kMagic) fail_by(peer, TSR_DATA_LOSS, "tcp: damaged data from " + name(peer));
    offered_[at(peer)] = offer.capacity != 0;
    if (!offered_[at(peer)]) return;
    Reply reply;
    if (options_.enabled) shared_[at(peer)] = seen(offer);
    if (shared_[at(peer)]) {
      reply.sees_it = 1;
      reply.nonce = shared_[at(peer)].state().nonces[1] = random_nonce();
      reply.process = getpid();
      reply.badge_address = show_badge(peer, reply.nonce);
      reply.reads_it = reads(peer, {offer.process, offer.badge_address, offer.nonce});
    }
    tell(peer, reply);
  }

  static SharedMemory seen(const Offer& offer) {
    if (!std::has_single_bit(offer.capacity) || offer.capacity < kLeastRing || offer.capacity > kMostRing) return {};
    const std::string path = "/proc/" + std::to_string(offer.process) + "/fd/" + std::to_string(offer.file);
    const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    SharedMemory memory = file ? SharedMemory::open(file, offer.capacity) : SharedMemory();
    const bool same = memory && memory.state().magic == kMagic && memory.state().nonces[0] == offer.nonce;
    return same ? std::move(memory) : SharedMemory();
  }

  void judge(int32_t peer) {
    if (!shared_[at(peer)]) return;
    const Reply reply = hear<Reply>(peer);
    const bool shared = reply.sees_it != 0 && shared_[at(peer)].state().nonces[1] == reply.nonce;
    Verdict verdict{shared, 0};
    if (shared) {
      shared_[at(peer)].lending.lends = reply.reads_it != 0;
      verdict.reads_it = reads(peer, {reply.process, reply.badge_address, reply.nonce});
    } else {
      shared_[at(peer)] = SharedMemory();
    }
    files_[at(peer)].reset();
    tell(peer, verdict);
  }

  // Also called if this rank has declined, because the verdict is sent in any case.
  void obey(int32_t peer) {
    if (!offered_[at(peer)]) return;
    const Verdict verdict = hear<Verdict>(peer);
    if (verdict.shared == 0) shared_[at(peer)] = SharedMemory();
    shared_[at(peer)].lending.lends = verdict.reads_it != 0;
  }

  uint64_t show_badge(int32_t peer, const Nonce& nonce) {
    SharedMemory::Lending& lending = shared_[at(peer)].lending;
    lending.badge = std::make_unique<Nonce>(nonce);
    return reinterpret_cast<uintptr_t>(lending.badge.get());
  }

  bool reads(int32_t peer, const Process& process) {
    shared_[at(peer)].lending.other = process;
    return options_.single_copy && process.shows_badge();
  }

  // These few bytes fit into a new connection's buffers.
  template <class Message>
  void tell(int32_t peer, const Message& message) const {
    if (send(links_[at(peer)].data.get(), &message, sizeof(message), MSG_NOSIGNAL) != sizeof(message)) {
      lost(peer, errno);
    }
  }

  template <class Message>
  Message hear(int32_t peer) const {
    Message message;
    const int fd = links_[at(peer)].data.get();
    for (size_t got = 0; got < sizeof(message);) {
      const ssize_t n = recv(fd, reinterpret_cast<char*>(&message) + got, sizeof(message) - got, MSG_DONTWAIT);
      if (n > 0) {
        got += static_cast<size_t>(n);
        continue;
      }
      const bool wait = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
      if (!wait) lost(peer, n == 0 ? 0 : errno);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(options_.deadline - Clock::now()).count();
      if (left <= 0) {
        fail_by(peer, TSR_DEADLINE_EXCEEDED,
                "tcp: " + name(peer) + " did not connect to " + name(options_.rank) + " within " +
                    sdk::seconds_text(options_.timeout_s));
      }
      pollfd polled{fd, POLLIN, 0};
      poll(&polled, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
    }
    return message;
  }

  // If the peer gave up because of another rank, it has told all others why.
  [[noreturn]] void lost(int32_t peer, int error) const {
    const int notices = links_[at(peer)].control.get();
    sdk::NoticeSocket hears(notices);
    sdk::Notice notice;
    const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
    for (sdk::Heard heard; heard.what != sdk::Heard::kEnd && Clock::now() < until; heard = hears.hear(&notice)) {
      if (heard.what == sdk::Heard::kNotice && notice.kind == sdk::Notice::kAbort) {
        throw sdk::Failure(notice.reported(), notice.said().text, notice.at_fault);
      }
      pollfd polled{notices, POLLIN, 0};
      poll(&polled, 1, 10);
    }
    fail_by(peer, TSR_ABORTED,
            "tcp: " + name(peer) + " died while ranks connected (" +
                (error == 0 ? "connection closed" : std::strerror(error)) + ")");
  }

  static size_t at(int32_t rank) { return static_cast<size_t>(rank); }
  std::string name(int32_t rank) const { return "rank " + std::to_string(options_.names[at(rank)]); }
  [[noreturn]] void fail_by(int32_t rank, tsr_code code, const std::string& text) const {
    throw sdk::Failure(code, text, options_.names[at(rank)]);
  }

  const std::vector<Link>& links_;
  const SharingOptions& options_;
  std::vector<SharedMemory> shared_;
  std::vector<Fd> files_;      // files of memory made here, until the other side has opened them
  std::vector<bool> offered_;  // per lower rank
};

}  // namespace

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(capacity_, other.capacity_);
  std::swap(lending, other.lending);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (state_ != nullptr) munmap(state_, file_bytes(capacity_));
}

char* SharedMemory::data(size_t ring) const { return reinterpret_cast<char*>(state_) + kStateBytes + ring * capacity_; }

SharedMemory SharedMemory::make(size_t capacity, Fd* file) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  *file = Fd(memfd_create("tessera", kFlags | MFD_NOEXEC_SEAL));
  if (!*file) *file = Fd(memfd_create("tessera", kFlags));  // kernels before 6.3
  const auto bytes = static_cast<off_t>(file_bytes(capacity));
  if (!*file || fchmod(file->get(), 0600) != 0 || ftruncate(file->get(), bytes) != 0 ||
      fcntl(file->get(), F_ADD_SEALS, kSeals) != 0) {
    return {};
  }
  SharedMemory memory = open(*file, capacity);
  if (memory) new (memory.state_) SharedState{.magic = kMagic};
  return memory;
}

SharedMemory SharedMemory::open(const Fd& file, size_t capacity) {
  struct stat status;
  // The file is sealed, so the other side cannot shrink it below what is mapped here.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(file_bytes(capacity))) {
    return {};
  }
  void* memory = mmap(nullptr, file_bytes(capacity), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return memory == MAP_FAILED ? SharedMemory() : SharedMemory(memory, capacity);
}

std::vector<SharedMemory> share_memory(const std::vector<Link>& links, const SharingOptions& options) try {
  return Handshake(links, options).run();
} catch (const sdk::Failure& failure) {
  const sdk::Notice notice(sdk::Notice::kAbort, options.rank, failure.code(), {failure.what(), failure.rank()});
  for (const Link& link : links) {
    if (link.control) sdk::NoticeSocket(link.control.get()).tell(notice);
  }
  throw;
}

}  // namespace tessera::tcp
