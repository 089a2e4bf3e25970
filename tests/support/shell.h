// For tests: runs a command of the shell, and takes its output apart.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::test {

struct Ended {
  int status = -1;     // -1 unless it exited by itself
  std::string output;  // of run_shell(): standard output only
};

inline Ended run_shell(const std::string& command) {
  Ended ended;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return ended;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) ended.output.append(buffer, n);
  const int status = ::pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

// The standard output of a command that has to succeed.
inline std::string output_of(const std::string& command) {
  Ended ended = run_shell(command);
  EXPECT_EQ(ended.status, 0) << command << "\n" << ended.output;
  return ended.output;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace tessera::test
