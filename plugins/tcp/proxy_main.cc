// tessera-tcp-proxy: simulates network faults for experiments (docs/tcp.md).
#include <boost/program_options.hpp>
#include <iostream>

#include "proxy.h"

namespace {

using namespace tessera::tcp;
namespace po = boost::program_options;

struct Arguments {
  std::string listen = "127.0.0.1", between;
  uint16_t port = 7000;
  double delay_ms = 0, rate = 0, after_s = 0;
  bool cut = false, hold = false;
};

// Parses "1:2"; empty: any two ranks.
Between parse_between(const std::string& text) {
  if (text.empty()) return {};
  const size_t colon = text.find(':');
  if (colon == std::string::npos) throw po::error("--between takes two ranks, A:B");
  return {std::stoi(text.substr(0, colon)), std::stoi(text.substr(colon + 1))};
}

int run(const Arguments& arguments) {
  asio::io_context io{1};
  Proxy proxy(io, {asio::ip::make_address(arguments.listen), arguments.port});
  const Between ranks = parse_between(arguments.between);
  const std::chrono::duration<double, std::milli> delay(arguments.delay_ms);
  proxy.set(ranks, {std::chrono::duration_cast<std::chrono::microseconds>(delay), arguments.rate});
  asio::steady_timer timer(io);
  if (arguments.cut || arguments.hold) {
    timer.expires_after(std::chrono::microseconds(static_cast<int64_t>(arguments.after_s * 1e6)));
    timer.async_wait([&](boost::system::error_code) {
      arguments.cut ? proxy.cut(ranks) : proxy.hold(ranks);
      std::cerr << (arguments.cut ? "cut\n" : "held\n");
    });
  }
  asio::signal_set ends(io, SIGINT, SIGTERM);
  ends.async_wait([&](boost::system::error_code, int) { io.stop(); });
  std::cerr << "tessera-tcp-proxy: listens at " << to_text(proxy.endpoint()) << std::endl;
  io.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments arguments;
  po::options_description options(
      "Usage: tessera-tcp-proxy [OPTIONS]\nRanks with comm.backend = "
      "\"tcp?shm=false&proxy=127.0.0.1:7000\" call each other through it.\nOptions");
  auto add = options.add_options();
  add("listen", po::value(&arguments.listen)->default_value(arguments.listen), "address");
  add("port", po::value(&arguments.port)->default_value(arguments.port), "port to listen on; 0: any, which is printed");
  add("between", po::value(&arguments.between)->value_name("A:B"),
      "apply the faults only to messages between these two "
      "ranks; -1: any rank");
  add("delay", po::value(&arguments.delay_ms)->value_name("MS"), "each way");
  add("rate", po::value(&arguments.rate)->value_name("BYTES"), "in a second, of each connection, each way");
  add("cut", po::bool_switch(&arguments.cut), "reset connections");
  add("hold", po::bool_switch(&arguments.hold),
      "let nothing pass any more, without telling anybody: half-open "
      "connections");
  add("after", po::value(&arguments.after_s)->value_name("SECONDS"), "seconds after the start for --cut and --hold");
  add("help,h", "this text");
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, options), given);
  po::notify(given);
  if (given.count("help") != 0) {
    std::cout << options;
    return 0;
  }
  return run(arguments);
} catch (const std::exception& e) {
  std::cerr << "tessera-tcp-proxy: " << e.what() << '\n';
  return 2;
}
