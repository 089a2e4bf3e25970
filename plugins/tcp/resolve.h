// The address of rank 0: a name, looked up within a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "door.h"

namespace tessera::tcp {

// The addresses of a name, or the reason why it is not known.
struct Lookup {
  std::vector<asio::ip::address> addresses;
  std::string problem;  // empty: none
};

// The system's, which may take minutes where a name server does not answer.
Lookup look_up(const std::string& name);

// `name`'s addresses, loopback last, IPv4 first, so that all ranks try the same one first. Failure(TSR_UNAVAILABLE)
// where there are none; Failure(TSR_DEADLINE_EXCEEDED) names the name. Nothing can interrupt a lookup: it has a thread
// of its own, which is left alone at the deadline and ends when the lookup does.
std::vector<asio::ip::address> resolve(const std::string& name, std::chrono::steady_clock::time_point deadline,
                                       const std::function<Lookup(const std::string&)>& lookup = look_up);

// A remark, in brackets, on a name that is a loopback address, for other hosts; empty if nothing is wrong with it.
std::string loopback_hint(const std::string& name, const Endpoint& where);

}  // namespace tessera::tcp
