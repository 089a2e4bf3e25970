// A file that may be a plugin. It is opened once, and judged and read only through that descriptor.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "plugin/search_path.h"

namespace tessera::plugin {

// Size and time of the last change of a file: "4096 bytes at 1700000000.5".
std::string identity_of(const struct stat& status);

// The loader gets the path and not the descriptor. A library's name is what debuggers and dladdr() report, where
// $ORIGIN begins, and how the loader recognizes it. A descriptor's name is none of these, and becomes another file's as
// soon as it is closed. The path is safe, because only root and this user can make a trusted path lead elsewhere.
// changed() notices if they did.
class PluginFile {
 public:
  // `path` is canonical, as plugin_files() gives it. Directories above `program` need no trust, because whoever may
  // write there could also replace this program. kInvalidArgument: it is no regular file that this process may read.
  // The message is one sentence without the path.
  explicit PluginFile(const std::string& path, const std::string& program = own_file());
  ~PluginFile();
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;

  std::string identity() const { return identity_of(status_); }
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }
  // Copies [offset, offset + size) to `out`. kInvalidArgument: the file has become shorter.
  void read(uint64_t offset, void* out, uint64_t size) const;

  // The reason why this file is not trusted, or "". The file and its folder must belong to root or the effective user,
  // and nobody else may write them. The same holds for the directories above, with two exceptions. Others may write a
  // sticky directory (/tmp), because there they cannot touch what is not theirs. The owner's private group, which has
  // the owner's number, may also write.
  const std::string& distrust() const { return distrust_; }

  // The reason why the path does not lead to the opened file any more, or "".
  std::string changed() const;

 private:
  std::string path_;
  std::string program_;
  std::string distrust_;
  int fd_ = -1;
  struct stat status_ {};
};

}  // namespace tessera::plugin
