// The directory of a packed model while it is written: DIR.packing, renamed to DIR when it is complete. The next run
// removes what a killed run left there.
#pragma once

#include <string>

#include "checkpoint/files.h"

namespace tessera::inference {

class Staging {
 public:
  // kAlreadyExists: DIR exists, or DIR.packing has foreign files. kUnavailable: another job packs to DIR, or the place
  // cannot be written.
  explicit Staging(const std::string& directory);
  ~Staging();  // removes DIR.packing unless it was committed
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::string file(const std::string& name) const { return staging_ + "/" + name; }
  // Renames DIR.packing to DIR. Its files must be synced.
  void commit();

 private:
  void clear();

  std::string target_, staging_;
  checkpoint::Descriptor lock_;
  bool committed_ = false;
};

}  // namespace tessera::inference
