#include "verify/check.h"

#include <cstring>
#include <string_view>

#include "tessera/abi/collective.h"
#include "tessera/abi/kernel.h"
#include "tessera/infer.h"

namespace tessera::cli::verify {
namespace {

constexpr unsigned char kBehind = 0xC3;
constexpr const char* kErrorRule = "abi/base.h, tsr_error";

}  // namespace

const char* name_of(tsr_code code) {
  return code >= TSR_OK && code <= TSR_DATA_LOSS ? tsr_code_name(code) : "a code that abi/base.h lacks";
}

Call::Call() : raw_{TSR_ERROR_INIT, {}} { std::memset(raw_.behind, kBehind, sizeof(raw_.behind)); }

std::string Call::message() const {
  return {raw_.error.message, ::strnlen(raw_.error.message, sizeof(raw_.error.message))};
}

void Call::succeeds(tsr_code code, const std::string& what) const {
  const std::string why = fails_well(code, what);
  if (code == TSR_OK) return;
  const std::string text = str_cat(what, " failed with ", name_of(code), ": ", why);
  if (code == TSR_RESOURCE_EXHAUSTED) throw Exhausted(text);
  throw Broken(text);
}

std::string Call::fails(tsr_code code, const std::string& what) const {
  if (code == TSR_OK) broken(what, " succeeded, but must be refused");
  return fails_well(code, what);
}

std::string Call::fails_well(tsr_code code, const std::string& what) const {
  for (const unsigned char byte : raw_.behind) {
    if (byte != kBehind) throw Broken(what + " wrote past the caller's tsr_error", kErrorRule);
  }
  if (raw_.error.struct_size != sizeof(tsr_error))
    throw Broken(what + " changed struct_size of the caller's tsr_error", kErrorRule);
  std::string said = message();
  if (code == TSR_OK) {
    if (raw_.error.code != TSR_OK || raw_.error.rank != -1 || !said.empty())
      throw Broken(str_cat(what, " succeeded, but wrote into the caller's tsr_error: ", said), kErrorRule);
    return "";
  }
  if (said.size() == sizeof(raw_.error.message)) throw Broken(what + " gave a message without its NUL", kErrorRule);
  if (said.empty()) throw Broken(str_cat(what, " failed with ", name_of(code), " and an empty message"), kErrorRule);
  if (raw_.error.code != code) {
    throw Broken(str_cat(what, " returned ", name_of(code), ", but filled in ", name_of(raw_.error.code), ": ", said),
                 kErrorRule);
  }
  if (raw_.error.rank < -1) throw Broken(str_cat(what, " blames rank ", raw_.error.rank), kErrorRule);
  return said;
}

Made::Made(const tsr_component& component, const tsr_host* host, const std::string& options, ComponentPtr inner)
    : Made(component, host, options, inner == nullptr ? nullptr : inner->raw()) {
  inner_ = std::move(inner);
}

Made::Made(const tsr_component& component, const tsr_host* host, const std::string& options, const tsr_instance* inner)
    : raw_{&component, nullptr} {
  Call call;
  const tsr_code code = component.create(&component, host, options.c_str(), inner, &raw_.self, call.out());
  if (code != TSR_OK) raw_.component = nullptr;
  call.succeeds(code, str_cat("create with ", options));
}

Made::~Made() {
  if (raw_.component != nullptr) raw_.component->destroy(raw_.self);
}

const tsr_component& Subject::component() {
  if (component_ != nullptr) return *component_;
  doing("opening the file");
  library_ = std::make_unique<plugin::Library>(what_.path);
  if (const plugin::Library::Verdict& verdict = library_->open(host_.raw()); !verdict.reason.empty())
    throw Broken(verdict.reason, "docs/ABI.md, The rules");
  const auto& lines = library_->note().components;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (what_.line.id.empty() || lines[i] == what_.line) return *(component_ = library_->component(i));
  }
  broken("there is no ", what_.line.kind, " \"", what_.line.id, "\" in the file any more");
}

std::string Subject::changed_when_opened() {
  component();
  return library_->open(host_.raw()).changed;
}

Made Subject::make(const std::string& options, const tsr_host* host) {
  const tsr_component& c = component();
  ComponentPtr wrapped = inner();
  doing(str_cat("create with ", options));
  return {c, host == nullptr ? host_.raw() : host, options, std::move(wrapped)};
}

Made Subject::make_around(const tsr_instance& inner) {
  doing(str_cat("create with ", what_.options));
  return {component(), host_.raw(), what_.options, &inner};
}

const Runtime& Subject::others() {
  if (others_ == nullptr) others_ = std::make_unique<Runtime>();
  return *others_;
}

ComponentPtr Subject::inner() {
  const tsr_component& c = component();
  std::string inner = what_.inner;
  if (c.kind == std::string_view(TSR_COLLECTIVE_KIND)) {
    const auto& collective = *static_cast<const tsr_collective*>(c.api);
    if (inner.empty() && (collective.flags & TSR_COLLECTIVE_WRAPS) != 0) inner = "tcp";
  } else if (c.kind == std::string_view(TSR_KERNEL_KIND)) {
    const auto& kernel = *static_cast<const tsr_kernel*>(c.api);
    if (inner.empty() && (kernel.flags & TSR_KERNEL_WRAPS) != 0) inner = "cpu";
  }
  if (inner.empty()) return nullptr;
  try {
    return others().create(c.kind, inner);
  } catch (const Error& e) {
    throw Skipped(str_cat("the component for it to wrap cannot be made: ", e.what()));
  }
}

std::vector<Check> all_checks() {
  std::vector<Check> all;
  for (const auto checks :
       {static_checks(), load_checks(), contract_checks(), sharder_checks(), optimizer_checks(), kernel_checks(),
        collective_checks(), collective_info_checks(), collective_series_checks(), module_checks(), reader_checks(),
        metric_checks(), device_checks(), endpoint_checks(), index_checks()}) {
    all.insert(all.end(), checks.begin(), checks.end());
  }
  return all;
}

}  // namespace tessera::cli::verify
