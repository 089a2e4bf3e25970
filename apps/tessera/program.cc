#include "program.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <system_error>

#include "command.h"
#include "processes.h"
#include "rank_status.h"
#include "wrapped.h"

namespace tessera::cli {
int status_of(const std::string& who, const std::function<int()>& command) {
  const auto sentence = [&](const std::exception& e) { return fitted(who + ": " + e.what(), STDERR_FILENO); };
  // in one write, because ranks share the stream
  const auto say = [&](const std::exception& e) { std::cerr << sentence(e); };
  try {
    return command();
  } catch (const UsageError& e) {
    say_once(sentence(e));
    return 2;
  } catch (const Error& e) {
    const Code code = e.code();
    const bool used_wrongly = code == Code::kInvalidArgument || code == Code::kNotFound ||
                              code == Code::kAlreadyExists || code == Code::kUnimplemented;
    // If memory is too small, for a plan for example, it is too small on every rank.
    used_wrongly || code == Code::kResourceExhausted ? say_once(sentence(e)) : say(e);
    return used_wrongly ? 2 : 1;
  } catch (const std::bad_alloc&) {
    say(out_of_memory());
    return 1;
  } catch (const std::system_error& e) {
    const bool threads = e.code() == std::errc::resource_unavailable_try_again;
    if (!threads) say(e);
    if (threads) say(std::runtime_error("the system grants no more threads: raise ulimit -u, or ulimit -v"));
    return 1;
  } catch (const std::exception& e) {
    say(e);
    return 1;
  }
}

void become(const std::string& program, std::vector<std::string> args, const std::string& advice) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / program;
  if (access(path.c_str(), X_OK) != 0) throw UsageError(str_cat(path, " is not there: ", advice));
  args.insert(args.begin(), path);
  std::vector<char*> raw;
  for (std::string& word : args) raw.push_back(word.data());
  raw.push_back(nullptr);
  std::cout.flush();  // the head of a manual page
  execv(path.c_str(), raw.data());
  fail(Code::kUnavailable, "cannot start ", path, ": ", system_error());
}

}  // namespace tessera::cli
