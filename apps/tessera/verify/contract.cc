// Level 3, for components of every kind: creation, options, errors, memory, and the state of the process.
#include <cstring>
#include <string_view>

#include "plugin/process_state.h"
#include "verify/check.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

// Creates components of one plugin, with the component that they wrap.
struct Creation {
  explicit Creation(Subject& subject) : component(subject.component()), inner(subject.inner()) {}
  tsr_code operator()(const tsr_host* host, const std::string& options, tsr_error* err) {
    self = nullptr;
    return component.create(&component, host, options.c_str(), inner == nullptr ? nullptr : inner->raw(), &self, err);
  }
  const tsr_component& component;
  ComponentPtr inner;
  void* self = nullptr;
};

void check_contract_create(Subject& subject) {
  for (int i = 0; i < 3; ++i) {
    Made part = subject.make();
    Made second = subject.make();
    subject.doing("destroy");
  }
  if (subject.host().live_bytes() != 0)
    broken("after destroy it still holds ", subject.host().live_bytes(), " bytes that the host lent");
}

void check_contract_bad_options(Subject& subject) {
  Creation create(subject);
  for (const char* options : {R"({"tessera_verify_knows_no_such_option": 1})", "{", "[]", "no JSON", ""}) {
    subject.doing(str_cat("create with ", options));
    Call call;
    const tsr_code code = create(subject.host().raw(), options, call.out());
    const std::string what = str_cat("create with the options ", *options == '\0' ? "\"\"" : options);
    call.fails(code, what);
    if (std::string_view(options).starts_with("{\"") && code != TSR_INVALID_ARGUMENT)
      broken(what, " failed with ", name_of(code), ", but an unknown key is TSR_INVALID_ARGUMENT");
  }
}

// Calls with an error whose text has space for only a few letters.
void check_contract_errors(Subject& subject) {
  struct Small {
    tsr_error error;
    unsigned char* letter(size_t i) { return reinterpret_cast<unsigned char*>(error.message) + i; }
  };
  constexpr uint32_t kRoom = 16;
  Small small{};
  std::memset(small.letter(kRoom), 0xC3, sizeof(small.error.message) - kRoom);
  small.error.struct_size = offsetof(tsr_error, message) + kRoom;
  Creation create(subject);
  subject.doing("create with a short tsr_error");
  const tsr_code code = create(subject.host().raw(), R"({"tessera_verify_knows_no_such_option": 1})", &small.error);
  require(code != TSR_OK, "create succeeded with an option that does not exist");
  for (size_t i = kRoom; i < sizeof(small.error.message); ++i) {
    require(*small.letter(i) == 0xC3, "it wrote message byte ", i, " of a tsr_error that has room for ", kRoom);
  }
  require(std::memchr(small.error.message, 0, kRoom) != nullptr, "a truncated message has no NUL");
}

void check_contract_no_memory(Subject& subject) {
  Creation create(subject);
  for (int64_t allowed = 0; allowed < 8; ++allowed) {
    subject.host().allow(allowed);
    subject.doing(str_cat("create with memory for ", allowed, " blocks"));
    Call call;
    const tsr_code code = create(subject.host().raw(), subject.what().options, call.out());
    subject.host().allow(-1);
    call.fails_well(code, str_cat("create with memory for ", allowed, " blocks"));
    if (code == TSR_OK) create.component.destroy(create.self);
    if (subject.host().live_bytes() != 0)
      broken("when memory ran out in create, it kept ", subject.host().live_bytes(), " bytes of the host");
    if (code == TSR_OK) return;
  }
}

void check_contract_host_sizes(Subject& subject) {
  struct {
    tsr_host host;
    unsigned char more[64];
  } longer;
  longer.host = *subject.host().raw();
  longer.host.struct_size = sizeof(longer);
  std::memset(longer.more, 0xC3, sizeof(longer.more));
  { const Made part = subject.make(subject.what().options, &longer.host); }
  tsr_host shorter = *subject.host().raw();
  shorter.struct_size = offsetof(tsr_host, extension);
  shorter.extension = nullptr;
  const Made part = subject.make(subject.what().options, &shorter);
}

void check_contract_process(Subject& subject) {
  subject.component();
  { const ComponentPtr others_first = subject.inner(); }
  const plugin::ProcessState before;
  const int threads = threads_now();
  {
    const Made part = subject.make();
    if (const std::string changed = before.restore(); !changed.empty()) broken("in create, it changed ", changed);
    subject.doing("destroy");
  }
  if (const std::string changed = before.restore(); !changed.empty()) broken("in destroy, it changed ", changed);
  if (const int now = threads_once_at_most(threads); now > threads) {
    throw Broken(str_cat("destroy left ", now - threads, now - threads == 1 ? " thread" : " threads", " running"),
                 "abi/plugin.h, tsr_component::destroy");
  }
}

}  // namespace

std::span<const Check> contract_checks() {
  static constexpr const char* kCreate = "abi/plugin.h, tsr_component::create";
  static constexpr Check kChecks[] = {
      {"contract.create", 3, nullptr, kCreate, 20, check_contract_create, Check::kComponent},
      {"contract.options", 3, nullptr, kCreate, 20, check_contract_bad_options},
      {"contract.errors", 3, nullptr, "abi/base.h, tsr_error", 20, check_contract_errors},
      {"contract.memory", 3, nullptr, "abi/host.h, tsr_host::alloc", 20, check_contract_no_memory},
      {"contract.host_sizes", 3, nullptr, "abi/base.h, TSR_HAS", 20, check_contract_host_sizes},
      {"contract.process", 3, nullptr, "abi/base.h, The process is the host's", 20, check_contract_process},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
