// Level 2: opens the file and asks for its content.
#include <dlfcn.h>

#include <cstring>

#include "verify/check.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

// Opens the file as a job does, in a child process first, because an exception of a static initializer ends a process.
void check_load_open(Subject& subject) {
  subject.doing("opening the file");
  plugin::Library library(subject.what().path);
  const plugin::Trials trials{.kept_in = "", .longest_s = 15};
  const std::string& reason = library.open(subject.host().raw(), &trials).reason;
  if (!reason.empty()) throw Broken(reason, "docs/ABI.md, The rules");
  subject.component();
}

tsr_entry entry_of(const Subject& subject) {
  void* handle = dlopen(subject.what().path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  void* symbol = handle == nullptr ? nullptr : dlsym(handle, TSR_ENTRY_SYMBOL);
  if (symbol == nullptr) broken("its entry is not found again once it is open");
  return reinterpret_cast<tsr_entry>(symbol);
}

void check_load_entry(Subject& subject) {
  subject.component();
  const tsr_entry entry = entry_of(subject);
  subject.doing("a second call of the entry");
  Call first, second;
  const tsr_plugin* a = entry(subject.host().raw(), first.out());
  const tsr_plugin* b = entry(subject.host().raw(), second.out());
  require(a == b && a != nullptr, "the entry gives another table at another call");
}

// Tests a host with members at its end that the plugin does not know, and a host that lacks its last member.
void check_load_host_sizes(Subject& subject) {
  subject.component();
  const tsr_entry entry = entry_of(subject);
  struct {
    tsr_host host;
    unsigned char more[64];
  } longer;
  longer.host = *subject.host().raw();
  longer.host.struct_size = sizeof(longer);
  std::memset(longer.more, 0xC3, sizeof(longer.more));
  subject.doing("the entry, with a longer tsr_host");
  Call call;
  if (entry(&longer.host, call.out()) == nullptr) broken("it refuses a host whose table is longer: ", call.message());
  tsr_host shorter = *subject.host().raw();
  shorter.struct_size = offsetof(tsr_host, extension);
  subject.doing("the entry, with a tsr_host that ends before its last member");
  if (entry(&shorter, call.out()) == nullptr && call.message().empty())
    broken("it refuses a shorter host without saying why");
}

void check_load_process(Subject& subject) {
  const int threads = threads_now();
  if (const std::string changed = subject.changed_when_opened(); !changed.empty())
    broken("when it was opened, it changed ", changed);
  if (const int now = threads_once_at_most(threads); now > threads)
    broken("when it was opened, it started ", now - threads, now - threads == 1 ? " thread" : " threads",
           ": threads are lent by the host");
}

void check_load_probe(Subject& subject) {
  const tsr_component& c = subject.component();
  if (!TSR_HAS(tsr_component, &c, probe)) return;
  subject.doing("probe");
  Call call;
  const tsr_code code = c.probe(&c, subject.host().raw(), call.out());
  if (const std::string why = call.fails_well(code, "probe"); !why.empty())
    throw Skipped("it cannot run on this machine: " + why);
}

}  // namespace

std::span<const Check> load_checks() {
  static constexpr const char* kEntry = "abi/plugin.h, tsr_entry";
  static constexpr const char* kRules = "abi/base.h, The process is the host's";
  static constexpr Check kChecks[] = {
      {"load.open", 2, "", kEntry, 20, check_load_open, Check::kFile},
      {"load.entry", 2, "", kEntry, 20, check_load_entry},
      {"load.host_sizes", 2, "", "abi/base.h, TSR_HAS", 20, check_load_host_sizes},
      {"load.process", 2, "", kRules, 20, check_load_process},
      {"load.probe", 2, nullptr, "abi/plugin.h, tsr_component::probe", 20, check_load_probe, Check::kComponent},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
