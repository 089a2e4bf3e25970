// Ranks for a check of a transport: forked processes that meet over it, and a C++ wrapper of groups.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/sdk/collective.h"
#include "verify/check.h"

namespace tessera::cli::verify {

// The error of a transport whose call failed.
class Refused : public std::runtime_error {
 public:
  Refused(tsr_code code, const std::string& text, int32_t rank) : std::runtime_error(text), code_(code), rank_(rank) {}
  tsr_code code() const { return code_; }
  int32_t rank() const { return rank_; }  // the rank that the error blames

 private:
  tsr_code code_;
  int32_t rank_;
};

// A vector as a one-dimensional tensor, on a device whose memory is the host's.
template <class T>
class Elements {
 public:
  Elements(std::vector<T>& data, DLDataType type, DLDevice device) : size_(static_cast<int64_t>(data.size())) {
    tensor_ = {data.data(), device, 1, type, &size_, nullptr, 0};
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  const DLTensor* raw() const { return &tensor_; }

 private:
  int64_t size_;
  DLTensor tensor_;
};

// Wraps a group; every call throws Refused if it fails.
class Group {
 public:
  // `info` is from the object that connected the group.
  Group(const tsr_collective& api, tsr_group* raw, const tsr_collective_info& info)
      : api_(&api), raw_(raw), info_(info) {}
  ~Group();
  Group(Group&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)), info_(other.info_) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return api_->rank(raw_); }
  int world() const { return api_->world_size(raw_); }
  size_t ranks() const { return static_cast<size_t>(world()); }
  const tsr_collective& api() const { return *api_; }
  tsr_group* raw() const { return raw_; }
  const tsr_collective_info& info() const { return info_; }
  bool on_emulated_device() const;  // true if it takes tensors of the emulated device, whose memory is the host's
  // Starts an operation of the transport's table: `start(call, work, err)`.
  using Start = std::function<tsr_code(const tsr_collective_call*, tsr_work**, tsr_error*)>;
  tsr_work* begin(const char* label, double timeout_s, const Start& start) const;
  void wait(tsr_work* work) const;
  void run(const char* label, const Start& start, double timeout_s = 0) const { wait(begin(label, timeout_s, start)); }
  void barrier(const char* label, double timeout_s = 0) const;
  tsr_group* split(int32_t color, int32_t key = 0) const;  // NULL for color -1
  void abort(const char* reason) const { api_->abort(raw_, reason); }
  // Set for a meeting that counts: the wrapper under test, and the counting transport that it wraps.
  const Made* wrapper() const { return wrapper_; }
  const tsr_instance* counting() const { return counting_; }
  void counted_by(const Made* wrapper, const tsr_instance* counting) {
    wrapper_ = wrapper;
    counting_ = counting;
  }

 private:
  const tsr_collective* api_;
  tsr_group* raw_;
  tsr_collective_info info_;
  const Made* wrapper_ = nullptr;
  const tsr_instance* counting_ = nullptr;
};

// How a rank ended.
struct RankEnd {
  bool returned = false;  // true if its body returned or threw; then code and text are set
  bool threw = false;
  tsr_code code = TSR_OK;  // TSR_UNKNOWN for exceptions other than Refused
  std::string text;
  double seconds = 0;   // time since all ranks were started
  int32_t blamed = -1;  // tsr_error::rank
};

// A transport's description of itself.
tsr_collective_info described(const Made& part);

struct Meeting {
  int world = 2;
  double timeout_s = 15;         // of the group
  double patience_s = 25;        // after which ranks that have not ended are killed
  std::vector<int> lost = {};    // ranks that nobody waits for
  std::vector<int> absent = {};  // ranks that never connect
  uint32_t flags = 0;            // of the rendezvous
  bool counts = false;           // the transport wraps one that counts (counting_collective)
};

// A component that hands everything on to the transport that it wraps, and counts. Defined in collective_series.cc.
const tsr_component& counting_collective();

// Starts the ranks, each of which opens the plugin, connects and runs `body`. Throws Skipped for a transport whose
// ranks only its own launcher can start.
std::vector<RankEnd> in_ranks(Subject& subject, const Meeting& meeting, const std::function<void(Group&)>& body);
// The same; throws Broken with the first failure of a rank.
void in_all_ranks(Subject& subject, const Meeting& meeting, const std::function<void(Group&)>& body);

}  // namespace tessera::cli::verify
