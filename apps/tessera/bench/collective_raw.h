// A plain duplex exchange over one socket, without headers, checks or sleeping: what two ranks could reach at best.
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

  // Sends and receives so many bytes, both at once.
  void exchange(const char* send_from, char* recv_to, int64_t bytes) const;

 private:
  int fd_ = -1;
};

}  // namespace tessera::cli
