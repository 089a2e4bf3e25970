// Work that all ranks do together. A failure on any rank is thrown on all of them, so nobody is left waiting.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/process_group.h"

namespace tessera::checkpoint {

// Runs `body` on every rank, then exchanges the results: all texts, in rank order. If it fails on a rank, all ranks
// throw the error of the first such rank, prefixed with "rank N: " if there are several ranks. Collective.
std::vector<std::string> together(const ProcessGroup& group, const char* label,
                                  const std::function<std::string()>& body);

// Does the same for a value of each rank.
template <class Body>
auto values_together(const ProcessGroup& group, const char* label, const Body& body) {
  using T = decltype(body());
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> out;
  const auto bytes = [&] {
    const T value = body();
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const std::string& of_rank : together(group, label, bytes))
    std::memcpy(&out.emplace_back(), of_rank.data(), std::min(of_rank.size(), sizeof(T)));
  return out;
}

// Does the same as together() for work that a slow disk may hold up for longer than the group's deadline. Another
// thread does it, and ranks keep in touch until all have finished. Collective.
std::vector<std::string> together_at_length(const ProcessGroup& group, const char* label,
                                            const std::function<std::string()>& body);

// Calls `work` on every rank until it returns false. A rank with less work keeps in touch with the others, so that the
// group's deadline does not pass. Collective.
void together_in_turns(const ProcessGroup& group, const char* label, const std::function<bool()>& work);

// Lowers the priority of the calling thread, so that training goes first if processors are few.
void give_way();

}  // namespace tessera::checkpoint
