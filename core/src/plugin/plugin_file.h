// A file that may be a plugin: opened once, then judged and read by that descriptor alone.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "plugin/search_path.h"

namespace tessera::plugin {

// The loader is given the path and not the descriptor: a library's name is what debuggers and dladdr() report, where
// $ORIGIN begins, and by which the loader knows it again; the name of a descriptor is none of these, and another file's
// as soon as it is closed. What makes that safe: nobody but root and this user can make a trusted path lead elsewhere,
// and changed() tells what these two have done.
class PluginFile {
 public:
  // `path` is canonical, as plugin_files() gives it. Directories above `program` need no trust: who may write there
  // could as well replace this program. kInvalidArgument with one sentence (without the path) for what is no regular
  // file that this process may read.
  explicit PluginFile(const std::string& path, const std::string& program = own_file());
  ~PluginFile();
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;

  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }
  // Copies [offset, offset + size) to `out`. kInvalidArgument where the file has become shorter.
  void read(uint64_t offset, void* out, uint64_t size) const;

  // Why this file is not to be trusted, or "". The file and its folder: they belong to root or to the effective user,
  // and nobody else may write them. The directories above: likewise, but a sticky one (/tmp) may be written by others,
  // who can do nothing there to what is not theirs, and so may one by the owner's private group (of the owner's
  // number).
  const std::string& distrust() const { return distrust_; }

  // Why the path does not lead to this very file any more, as it was when it was opened, or "".
  std::string changed() const;

 private:
  std::string path_;
  std::string program_;
  std::string distrust_;
  int fd_ = -1;
  struct stat status_ {};
};

}  // namespace tessera::plugin
