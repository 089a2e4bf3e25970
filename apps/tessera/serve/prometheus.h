// Writes Prometheus' text format 0.0.4, line by line.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::serve::prometheus {

// Writes "# HELP" and "# TYPE" of the lines that follow; `type` is "counter", "gauge" or "histogram".
void head(std::string& out, const char* name, const char* type, const char* help);
// A label's value, in quotes.
std::string label(const std::string& text);
std::string number(double value);  // as many digits as read back to the same number

// `labels` is "" or "{key=value,...}".
void line(std::string& out, const std::string& name, const std::string& labels, const std::string& value);
inline void line(std::string& out, const std::string& name, const std::string& labels, uint64_t value) {
  line(out, name, labels, std::to_string(value));
}
inline void line(std::string& out, const std::string& name, const std::string& labels, double value) {
  line(out, name, labels, number(value));
}

// Writes this process's resident memory.
void resident_memory(std::string& out);

}  // namespace tessera::serve::prometheus
