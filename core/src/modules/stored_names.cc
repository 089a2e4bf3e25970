#include "modules/stored_names.h"

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

using Parts = std::vector<std::string_view>;  // parts of a name between its dots

constexpr std::string_view kAny = "*";

Parts parts_of(std::string_view name) {
  Parts out;
  while (true) {
    const size_t dot = name.find('.');
    out.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return out;
    name.remove_prefix(dot + 1);
  }
}

std::string joined(const Parts& parts) {
  std::string out;
  for (const std::string_view part : parts) out += str_cat(out.empty() ? "" : ".", part);
  return out;
}

bool fits(const Parts& key, const Parts& own) {
  return key.size() <= own.size() && std::equal(key.begin(), key.end(), own.begin(),
                                                [](auto mine, auto its) { return mine == kAny || mine == its; });
}

bool is_name(const Parts& stored) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return std::all_of(stored.begin(), stored.end(), [&](std::string_view part) {
    return part == kAny || (!part.empty() && part.find_first_not_of(kLetters) == std::string_view::npos);
  });
}

}  // namespace

void check_names(const ParameterNames& names) {
  for (const auto& [key, stored] : names) {
    const Parts from = parts_of(key), to = parts_of(stored);
    if (!is_name(to))
      fail(Code::kInvalidArgument, "names calls \"", key, "\" \"", stored,
           "\", but between the dots of a name are letters, digits, \"_\" and \"-\", or one \"*\"");
    if (std::count(from.begin(), from.end(), kAny) != std::count(to.begin(), to.end(), kAny))
      fail(Code::kInvalidArgument, "names calls \"", key, "\" \"", stored,
           "\", but each \"*\" of the one stands for one of the other");
  }
}

std::string idle_name(const ParameterNames& names, const std::vector<std::string>& own) {
  for (const auto& [key, stored] : names) {
    const Parts from = parts_of(key);
    if (std::none_of(own.begin(), own.end(), [&](const std::string& name) { return fits(from, parts_of(name)); }))
      return key;
  }
  return "";
}

std::string stored_name(const std::string& layer, const std::string& own, const ParameterNames& names) {
  const Parts name = parts_of(own);
  const std::pair<std::string, std::string>* best = nullptr;
  // The greatest key is the most specific one: "*" sorts before names, and a key before longer ones.
  for (const auto& pair : names) {
    if (fits(parts_of(pair.first), name) && (best == nullptr || best->first < pair.first)) best = &pair;
  }
  if (best == nullptr) return layer + "." + own;
  const Parts key = parts_of(best->first);
  Parts out = parts_of(best->second);
  auto any = key.begin();
  for (std::string_view& part : out) {
    if (part != kAny) continue;
    any = std::find(any, key.end(), kAny);
    part = name[static_cast<size_t>(any++ - key.begin())];
  }
  out.insert(out.end(), name.begin() + static_cast<std::ptrdiff_t>(key.size()), name.end());
  return joined(out);
}

}  // namespace tessera
