// Verdicts of trials of plugin files are kept from start to start, so that a file is tried once on a machine.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plugin/plugin_file.h"
#include "plugin/trial.h"

namespace tessera::plugin {

// The verdict on one file. It counts for the same core on the same machine, as long as the file's path, size, time and
// content are the same, and size and time of the libraries that were loaded with it. Each verdict is a file of its own
// in a folder. Nothing here is ever an error: what cannot be read or written is not kept.
class KeptVerdict {
 public:
  // `folder` is absolute and gets a folder plugin_verdicts; "": nothing is kept. `file` must outlive this object.
  KeptVerdict(std::string folder, const std::string& path, const PluginFile& file);

  // Other processes that want the same lock wait as long as this object lives.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    friend class KeptVerdict;
    int fd_ = -1;
    std::string path_;
  };
  // Waits at most this long. Then, or if there can be no lock, it returns without one.
  [[nodiscard]] Lock lock(std::chrono::seconds longest) const;

  std::optional<TrialEnd> find() const;
  // Keeps a verdict that is lasting: one that is good, or breaks a rule. The number of verdicts in a folder is bounded;
  // the oldest go first.
  void keep(const TrialEnd& end) const;

  const std::string& path() const { return path_; }  // of the verdict's own file; "": nothing is kept

 private:
  nlohmann::ordered_json subject() const;
  uint32_t checksum() const;

  std::string folder_;
  std::string path_;
  std::string plugin_;
  const PluginFile& file_;
};

}  // namespace tessera::plugin
