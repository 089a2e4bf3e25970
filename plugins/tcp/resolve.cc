#include "resolve.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace tessera::tcp {
namespace {

// Shared by the caller, which may leave, and the thread that does the lookup.
struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<Lookup> lookup;
};

}  // namespace

Lookup look_up(const std::string& name) {
  Lookup found;
  asio::io_context io;
  boost::system::error_code error;
  for (const auto& result : asio::ip::tcp::resolver(io).resolve(name, "", error)) {
    found.addresses.push_back(result.endpoint().address());
  }
  if (error) found.problem = error.message();
  return found;
}

std::vector<asio::ip::address> resolve(const std::string& name, std::chrono::steady_clock::time_point deadline,
                                       const std::function<Lookup(const std::string&)>& lookup) {
  boost::system::error_code not_numeric;
  const asio::ip::address numeric = asio::ip::make_address(name, not_numeric);
  if (!not_numeric) return {numeric};

  const auto answer = std::make_shared<Answer>();
  std::thread([answer, name, lookup] {
    Lookup found = lookup(name);
    const std::lock_guard lock(answer->mutex);
    answer->lookup = std::move(found);
    answer->came.notify_one();
  }).detach();
  std::unique_lock lock(answer->mutex);
  if (!answer->came.wait_until(lock, deadline, [&] { return answer->lookup.has_value(); })) {
    sdk::fail(TSR_DEADLINE_EXCEEDED, "tcp: no name server has said in time what MASTER_ADDR \"", name,
              "\" is: give the address as a number, or raise comm.timeout_s");
  }
  std::vector<asio::ip::address> found = std::move(answer->lookup->addresses);
  if (found.empty()) {
    sdk::fail(TSR_UNAVAILABLE, "tcp: cannot resolve MASTER_ADDR \"", name,
              "\": ", answer->lookup->problem.empty() ? "it has no address" : answer->lookup->problem);
  }
  const auto reach = [](const asio::ip::address& a) { return 2 * a.is_loopback() + a.is_v6(); };
  std::stable_sort(found.begin(), found.end(),
                   [&](const asio::ip::address& a, const asio::ip::address& b) { return reach(a) < reach(b); });
  return found;
}

std::string loopback_hint(const std::string& name, const Endpoint& where) {
  const std::string ip = where.address().to_string();
  if (!where.address().is_loopback() || name == "localhost" || name == ip) return "";
  return " (MASTER_ADDR \"" + name + "\" is " + ip +
         " on rank 0's machine, which no other machine reaches: " + "give its address in the network)";
}

}  // namespace tessera::tcp
