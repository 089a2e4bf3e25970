#include "scenario.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace tessera::tcp::simulation {
namespace {

// Favours small sizes, because most faults happen between messages.
int64_t draw_elements(Random& random, bool tiny) {
  if (tiny) return static_cast<int64_t>(random.below(200));
  switch (random.below(32)) {
    case 0:
      // Large enough to be lent, and to be reduced in chunks.
      return static_cast<int64_t>(140000 + random.below(160000));
    case 1:
    case 2:
    case 3:
      return static_cast<int64_t>(random.below(30000));
    default:
      return static_cast<int64_t>(random.below(1500));
  }
}

Duration draw(Random& random, std::initializer_list<Duration> of) { return of.begin()[random.below(of.size())]; }

Weather draw_weather(Random& random, bool tiny, double timeout_s) {
  Weather weather;
  weather.latency = draw(random, {microseconds(0), microseconds(50), milliseconds(1), milliseconds(10)});
  weather.jitter = draw(random, {microseconds(0), microseconds(50), milliseconds(1), milliseconds(20)});
  weather.capacity = tiny ? 64 + random.below(2000) : size_t{64} << (10 + random.below(4));
  weather.at_once = tiny ? 1 + random.below(64) : size_t{1} << (13 + random.below(10));
  weather.interrupts = random.one_in(3);
  weather.patience = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout_s));
  return weather;
}

}  // namespace

const char* name_of(Fault fault) {
  constexpr const char* kNames[] = {"none", "killed", "stopped", "cut off", "reset", "leaves", "aborts", "disagrees"};
  static_assert(std::size(kNames) == kFaults);
  return kNames[static_cast<size_t>(fault)];
}

Scenario::Scenario(uint64_t seed_, bool in_rounds) : seed(seed_) {
  Random random(seed * 2 + 1);
  world = 2 + static_cast<int>(random.below(in_rounds ? 11 : 4));
  if (in_rounds) direct_world = 1;
  const int per_host = 1 + static_cast<int>(random.below(static_cast<uint64_t>(world)));
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / per_host);
  single_copy = !random.one_in(4);
  spin_us = random.one_in(3) ? 0 : random.one_in(20) ? 1e9 : 50;
  timeout_s = spin_us > 1e6 || random.one_in(2) ? 30 : 5;
  const bool tiny = random.one_in(3);
  weather = draw_weather(random, tiny, timeout_s);
  if (spin_us > 1e6) {  // a waiting rank never sleeps, so it takes many steps
    weather.tick = microseconds(500);
    weather.at_once = std::max(weather.at_once, size_t{64} << 10);
  }
  const size_t count = 1 + random.below(10);
  for (size_t i = 0; i < count; ++i) {
    operations.push_back({static_cast<sdk::OpKind>(random.below(6)), draw_elements(random, tiny)});
  }
  in_flight = 1 + random.below(4);
  pause = draw(random, {microseconds(0), microseconds(100), milliseconds(10)});
  if (!random.one_in(3)) fault = static_cast<Fault>(random.below(kFaults));
  culprit = static_cast<int>(random.below(static_cast<uint64_t>(world)));
  other = (culprit + 1 + static_cast<int>(random.below(static_cast<uint64_t>(world - 1)))) % world;
  early = fault == Fault::kKilled && random.one_in(4);
  when = random.up_to(draw(random, {microseconds(100), milliseconds(1), milliseconds(20), milliseconds(200)}));
  if (random.one_in(2)) how_long = milliseconds(1) + random.up_to(std::chrono::seconds(random.one_in(2) ? 1 : 40));
  after = random.below(count + 1);
}

std::string Scenario::describe() const {
  constexpr const char* kKinds[] = {"all_to_all", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
  std::ostringstream out;
  const auto us = [](Duration d) { return std::chrono::duration_cast<microseconds>(d).count(); };
  out << "seed " << seed << ": " << world << " ranks on hosts";
  for (int host : hosts) out << " " << host;
  out << (direct_world == 1 ? ", in rounds" : "") << (single_copy ? "" : ", no single copy") << ", spin_us " << spin_us
      << ", timeout " << timeout_s << " s\nnetwork: latency " << us(weather.latency) << " + " << us(weather.jitter)
      << " us, room " << weather.capacity << " bytes, at once " << weather.at_once
      << (weather.interrupts ? ", interrupts" : "") << "\noperations, " << in_flight << " in flight, pauses of "
      << us(pause) << " us:";
  for (const Operation& operation : operations) {
    out << " " << kKinds[static_cast<size_t>(operation.kind)] << "(" << operation.elements << ")";
  }
  out << "\nfault: " << name_of(fault);
  if (fault != Fault::kNone)
    out << ", rank " << culprit << " (other " << other << ") at " << us(when) << " us, for " << us(how_long) << " us"
        << (early ? " of connecting" : "") << ", after " << after << " operations";
  return out.str();
}

}  // namespace tessera::tcp::simulation
