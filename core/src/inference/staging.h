// A packed model's directory while it is written: DIR.packing, which becomes DIR by one rename when it is whole. What a
// killed run left there is cleared away by the next one.
#pragma once

#include <string>

#include "checkpoint/files.h"

namespace tessera::inference {

class Staging {
 public:
  // kAlreadyExists: DIR is there, or somebody else's files are in DIR.packing. kUnavailable: another job is packing to
  // DIR, or the place cannot be written.
  explicit Staging(const std::string& directory);
  ~Staging();  // removes DIR.packing, unless it was committed
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::string file(const std::string& name) const { return staging_ + "/" + name; }
  // DIR.packing becomes DIR. Its files must be synced.
  void commit();

 private:
  void clear();

  std::string target_, staging_;
  checkpoint::Descriptor lock_;
  bool committed_ = false;
};

}  // namespace tessera::inference
