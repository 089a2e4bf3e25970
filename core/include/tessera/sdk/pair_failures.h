// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/pair_failures.h - failure messages between ranks that exchange in pairs, and for their users.
//
// All engines under sdk/pairwise.h follow these rules, also those without sdk/pair_engine.h. The first failure of a
// group counts. A rank that fails tells the others, and they report the same. A rank that closes says goodbye, so that
// it is not taken for dead. All transports use the same messages, except for the name at the beginning.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tessera/sdk/error.h"
#include "tessera/sdk/pairwise.h"

namespace tessera::sdk {
inline namespace v1 {

// A sentence about a failure, and the rank at fault by its name in the text (tsr_error::rank); -1: unknown.
struct Blame {
  std::string text;
  int32_t rank = -1;
};

// A notice from one rank to another, which overtakes data. Integers are sent as they are in memory.
struct Notice {
  static constexpr uint32_t kMagic = 0x43525354;  // "TSRC"
  enum Kind : uint32_t {
    kAbort = 1,    // the sender's group has failed
    kGoodbye = 2,  // the sender has closed its group
    // Asks if the other machine is alive. The text names the rank that the sender waits for; "": none any more.
    kProbe = 3
  };
  uint32_t magic = kMagic;
  uint32_t kind = kGoodbye;
  int32_t rank = 0;       // the sender's rank in the group
  int32_t code = TSR_OK;  // for an abort: what the receiver reports
  // For a goodbye: number of operations that the sender has started. For a probe: the operation that owes the missing
  // data.
  uint64_t sequence = 0;
  int32_t at_fault = -1;  // for an abort or a probe: Blame::rank
  char text[484] = {};    // NUL-terminated; print it with safe_text()

  Notice() = default;
  Notice(Kind of, int32_t from, tsr_code reported, const Blame& blame, uint64_t in = 0)
      : kind(of), rank(from), code(static_cast<int32_t>(reported)), sequence(in), at_fault(blame.rank) {
    set_text(text, sizeof(text), blame.text);
  }
  // True if a working rank could have sent it: `text` and `code` of an abort must form an error.
  bool is_sound() const {
    return magic == kMagic && kind >= kAbort && kind <= kProbe && at_fault >= -1 && code >= 0 &&
           (kind != kAbort || text[0] != '\0');
  }
  // The error that the receiver of an abort throws.
  tsr_code reported() const { return code == TSR_OK ? TSR_ABORTED : static_cast<tsr_code>(code); }
  Blame said() const { return {safe_text(text, sizeof(text)), at_fault}; }
};
static_assert(sizeof(Notice) == 512);

// The first failure of a group. [any-thread]
class FirstFailure {
 public:
  // Returns true if this is the first failure, after calling `before` and before anybody else sees it.
  template <class Before>
  bool set(tsr_code code, const Blame& blame, Before&& before) noexcept {
    const std::lock_guard lock(mutex_);
    if (is_set()) return false;
    code_ = code;
    blame_.rank = blame.rank;
    try {
      blame_.text = blame.text;
    } catch (const std::bad_alloc&) {
      blame_.text.clear();
    }
    before();
    set_.store(true, std::memory_order_release);
    return true;
  }
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void throw_if_set() const {
    if (is_set()) rethrow();
  }
  // Call it only after a failure was set.
  [[noreturn]] void rethrow() const {
    const std::lock_guard lock(mutex_);
    throw Failure(code_, blame_.text, blame_.rank);
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return blame_.text;
  }

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  tsr_code code_ = TSR_OK;
  Blame blame_;
};

// Returns "rank 3" or "ranks 1, 3". It names at most 32 ranks, and says how many others there are.
inline std::string rank_list(const std::vector<int32_t>& ranks) {
  constexpr size_t kMost = 32;
  const size_t named = std::min(ranks.size(), kMost);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < named; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (named < ranks.size()) text += " and " + std::to_string(ranks.size() - named) + " others";
  return text;
}

inline int32_t first_of(const std::vector<int32_t>& ranks) { return ranks.empty() ? -1 : ranks.front(); }

inline std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

// True if two ranks make the same call, and `mine` expects `mine.bytes` from the other.
inline bool agree(const OpHeader& its, const OpHeader& mine) {
  return its.kind == mine.kind && its.reduce == mine.reduce && its.dtype_code == mine.dtype_code &&
         its.dtype_bits == mine.dtype_bits && its.sequence == mine.sequence && its.bytes == mine.bytes &&
         its.total == mine.total;
}

// The messages of a transport, without its name. Ranks are named as users know them. If several are at fault, the first
// is blamed; if two disagree, none.
namespace says {

inline std::string not_within(const PairwiseOp& op) {
  return name_of(op.header) + " did not finish within " + seconds_text(op.timeout_s);
}
inline Blame late(const std::vector<int32_t>& ranks, const PairwiseOp& op) {
  return {rank_list(ranks) + (ranks.size() > 1 ? " were" : " was") + " late: " + not_within(op), first_of(ranks)};
}
inline Blame out_of_reach(const std::vector<int32_t>& ranks, const std::string& why) {
  return {rank_list(ranks) + " can no longer be reached: " + why, first_of(ranks)};
}
inline Blame closed(int32_t rank, const OpHeader& header) {
  return {rank_list({rank}) + " closed its group before " + name_of(header) + " was done", rank};
}
// `error`: an errno, or 0.
inline Blame died(int32_t rank, const OpHeader& header, int error) {
  return {rank_list({rank}) + " died during " + name_of(header) + " (" +
              (error == 0 ? "connection closed" : std::strerror(error)) + ")",
          rank};
}
inline Blame damaged(int32_t rank, const OpHeader& header) {
  return {"damaged data from " + rank_list({rank}) + " during " + name_of(header), rank};
}
inline Blame disagree(int32_t its_rank, const OpHeader& its, int32_t my_rank, const OpHeader& mine) {
  std::string text = "ranks disagree: " + rank_list({its_rank}) + " called " + describe(its) + " while " +
                     rank_list({my_rank}) + " called " + describe(mine);
  if (its.sequence == mine.sequence) return {text};
  return {text + ", as operations number " + std::to_string(its.sequence) + " and " + std::to_string(mine.sequence)};
}
inline Blame aborted_here(int32_t rank, const std::string& reason) { return {"aborted by this rank: " + reason, rank}; }
inline Blame aborted(int32_t rank, const std::string& reason) {
  return {rank_list({rank}) + " aborted: " + reason, rank};
}

}  // namespace says
}  // namespace v1
}  // namespace tessera::sdk
