// Finds the address of rank 0: looks up a name within a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "door.h"

namespace tessera::tcp {

// The addresses of a name, or the reason why it is unknown.
struct Lookup {
  std::vector<asio::ip::address> addresses;
  std::string problem;  // empty: no problem
};

// The system's lookup, which may take minutes if a name server does not answer.
Lookup look_up(const std::string& name);

// Returns `name`'s addresses, loopback last, IPv4 first, so that all ranks try the same address first. Throws
// Failure(TSR_UNAVAILABLE) if there are none, and Failure(TSR_DEADLINE_EXCEEDED) at the deadline. A lookup cannot be
// interrupted. It runs in its own thread, which is abandoned at the deadline and ends with the lookup.
std::vector<asio::ip::address> resolve(const std::string& name, std::chrono::steady_clock::time_point deadline,
                                       const std::function<Lookup(const std::string&)>& lookup = look_up);

// Returns a remark, in brackets, if other hosts cannot use the name because it is a loopback address; otherwise "".
std::string loopback_hint(const std::string& name, const Endpoint& where);

}  // namespace tessera::tcp
