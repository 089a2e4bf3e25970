// One check of `tessera verify`, and the tools it gets.
//
// A check is a function that runs in a process of its own, in which the plugin is not open yet. It returns if all is
// well, and throws Broken, Skipped or Warning otherwise. It announces each question to the plugin before asking it
// (Subject::doing), so that the report of a crash or an endless call names the question.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin/elf_note.h"
#include "plugin/library.h"
#include "tessera/error.h"
#include "tessera/runtime.h"
#include "tessera/sdk/sized.h"
#include "verify/host.h"

namespace tessera::cli::verify {

// The component breaks the contract. One sentence: what it did, and with which input.
class Broken : public std::runtime_error {
 public:
  explicit Broken(const std::string& text, std::string rule = "") : std::runtime_error(text), rule_(std::move(rule)) {}
  const std::string& rule() const { return rule_; }  // "": the check's own rule

 private:
  std::string rule_;
};
// A call failed with TSR_RESOURCE_EXHAUSTED.
class Exhausted : public Broken {
  using Broken::Broken;
};
// Not a defect, but undesirable.
class Warning : public Broken {
  using Broken::Broken;
};
// The check is impossible here; the text says why.
class Skipped : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void broken(const Parts&... parts) {
  throw Broken(str_cat(parts...));
}
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) throw Broken(str_cat(parts...));
}

using Random = std::mt19937_64;
// A random number in [low, high].
inline int64_t between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// The caller's half of a call: an error as the contract defines it, followed by guard bytes that must not be written.
class Call {
 public:
  Call();
  tsr_error* out() { return &raw_.error; }
  // Throws Broken unless the call succeeded and left the error alone; `what` names the call: "forward".
  void succeeds(tsr_code code, const std::string& what) const;
  // Throws Broken if the call succeeded, or if its error is not filled as abi/base.h requires. Returns the message.
  std::string fails(tsr_code code, const std::string& what) const;
  // The same if the call failed; returns "" if it succeeded.
  std::string fails_well(tsr_code code, const std::string& what) const;
  std::string message() const;
  int32_t rank() const { return raw_.error.rank; }  // the rank that the error blames

 private:
  struct {
    tsr_error error;
    unsigned char behind[64];
  } raw_;
};

const char* name_of(tsr_code code);  // "TSR_OUT_OF_RANGE"

// A created component, destroyed with it.
class Made {
 public:
  Made(const tsr_component& component, const tsr_host* host, const std::string& options, ComponentPtr inner);
  // `inner` outlives the new object.
  Made(const tsr_component& component, const tsr_host* host, const std::string& options, const tsr_instance* inner);
  ~Made();
  Made(Made&& other) noexcept : raw_(other.raw_), inner_(std::move(other.inner_)) { other.raw_.component = nullptr; }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  const tsr_instance* raw() const { return &raw_; }
  void* self() const { return raw_.self; }
  template <class Api>
  const Api& api() const {
    return *static_cast<const Api*>(raw_.component->api);
  }

 private:
  tsr_instance raw_{};
  ComponentPtr inner_;
};

// The component that a check looks at; a whole file if `line` has no id.
class Subject {
 public:
  struct What {
    std::string path;
    plugin::ManifestLine line;
    std::string options = "{}";  // JSON, passed to create
    std::string inner;           // the component to wrap; "": the best one for host memory, if it wraps one at all
    std::string compute_kernel;  // for kernels: the compute kernel, with a table's options; "": one that updates rows
    uint64_t seed = 1;
    int level = 4;      // the highest level asked for; checks do more at 5
    std::string input;  // for readers: a path that it reads; "": files that verify writes
  };
  Subject(What what, std::function<void(const std::string&)> tell) : what_(std::move(what)), tell_(std::move(tell)) {}

  const What& what() const { return what_; }
  bool thorough() const { return what_.level >= 5; }
  Random random(uint64_t salt = 0) const { return Random(what_.seed * 1000003 + salt); }
  void doing(const std::string& text) const { tell_(text); }
  // Announces a question and asks it: ask(tsr_error*) has to succeed.
  template <class Ask>
  void asks(const std::string& what, const Ask& ask) const {
    doing(what);
    Call call;
    call.succeeds(ask(call.out()), what);
  }

  TestHost& host() { return host_; }
  // Opens the plugin at the first call. Throws Broken if that fails.
  const tsr_component& component();
  // The process state that opening the plugin changed, and that was restored; "" if nothing changed.
  std::string changed_when_opened();
  template <class Api>
  const Api& api() {
    return *static_cast<const Api*>(component().api);
  }
  Made make() { return make(what_.options); }
  Made make(const std::string& options, const tsr_host* host = nullptr);
  Made make_around(const tsr_instance& inner);  // `inner` outlives the new object
  ComponentPtr inner();                         // null if the component wraps nothing
  // Components of other plugins, those next to this program.
  const Runtime& others();

 private:
  What what_;
  std::function<void(const std::string&)> tell_;
  TestHost host_;
  std::unique_ptr<plugin::Library> library_;
  std::unique_ptr<Runtime> others_;
  const tsr_component* component_ = nullptr;
};

struct Check {
  enum Gate { kNone, kFile, kComponent };  // what is not checked any further after a failure
  const char* name;                        // such as "sharder.tiling"
  int level;
  const char* kind;  // kind of components it is for; nullptr: all; "": the file
  const char* rule;  // place of the rule: "abi/sharder.h, tsr_layout"
  double seconds;    // after which it is stopped
  void (*run)(Subject&);
  Gate gate = kNone;
};

// All checks, in the order in which they run.
std::vector<Check> all_checks();
std::span<const Check> static_checks();
std::span<const Check> load_checks();
std::span<const Check> contract_checks();
std::span<const Check> sharder_checks();
std::span<const Check> optimizer_checks();
std::span<const Check> kernel_checks();
std::span<const Check> collective_checks();
std::span<const Check> collective_info_checks();  // check a transport's description of itself
std::span<const Check> collective_series_checks();
std::span<const Check> module_checks();
std::span<const Check> reader_checks();
std::span<const Check> metric_checks();
std::span<const Check> device_checks();
std::span<const Check> endpoint_checks();
std::span<const Check> index_checks();

}  // namespace tessera::cli::verify
