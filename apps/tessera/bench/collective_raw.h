// A plain duplex exchange over one socket, without headers, checks or sleeping: the best that two ranks could reach.
#pragma once

#include <cstdint>

#include "tessera/process_group.h"

namespace tessera::cli {

// A connection on loopback between the two ranks of a group. Errors: kUnavailable.
class RawSocket {
 public:
  explicit RawSocket(const ProcessGroup& group);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  // Sends `bytes` bytes and receives as many, both at once.
  void exchange(const char* send_from, char* recv_to, int64_t bytes) const;

 private:
  int fd_ = -1;
};

}  // namespace tessera::cli
