#include "serve/prometheus.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <fstream>

namespace tessera::serve::prometheus {

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string label(const std::string& text) {  // escapes backslash, quote and newline
  std::string out = "\"";
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[40];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

void line(std::string& out, const std::string& name, const std::string& labels, const std::string& value) {
  out += name + labels + " " + value + "\n";
}

void resident_memory(std::string& out) {
  std::ifstream in("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  in >> all >> resident;
  head(out, "process_resident_memory_bytes", "gauge", "Resident memory.");
  line(out, "process_resident_memory_bytes", "", resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace tessera::serve::prometheus
