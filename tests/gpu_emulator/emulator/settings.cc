#include "emulator/settings.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace emulator {
namespace {

[[noreturn]] void refuse(std::string_view item) {
  std::fprintf(
      stderr,
      "TESSERA_GPU_EMULATOR: \"%.*s\" is not warp=32|64, workers=N, delay_us=N, seed=N, devices=N, memory_mb=N "
      "or guard=0|1\n",
      static_cast<int>(item.size()), item.data());
  std::exit(2);
}

void apply(std::string_view item, Config& config) {
  const size_t equals = item.find('=');
  if (equals == std::string_view::npos) refuse(item);
  const std::string_view key = item.substr(0, equals), text = item.substr(equals + 1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > (uint64_t{1} << 30)) refuse(item);
  if (key == "warp" && (value == 32 || value == 64)) {
    config.warp_size = static_cast<int>(value);
  } else if (key == "workers" && value >= 1 && value <= 64) {
    config.workers = static_cast<int>(value);
  } else if (key == "delay_us") {
    config.delay = std::chrono::microseconds(value);
  } else if (key == "seed") {
    config.seed = value;
  } else if (key == "devices" && value <= 16) {
    config.devices = static_cast<int>(value);
  } else if (key == "memory_mb") {
    config.memory_bytes = static_cast<size_t>(value) << 20;
  } else if (key == "guard" && value <= 1) {
    config.guard = value == 1;
  } else {
    refuse(item);
  }
}

}  // namespace

Config settings_from_environment() {
  Config config;
  const char* variable = std::getenv("TESSERA_GPU_EMULATOR");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    apply(rest.substr(0, comma), config);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return config;
}

}  // namespace emulator
