// How the launchers of several nodes meet, before each start of a job, in a directory that all of them see: who takes
// part, with how many ranks, and where rank 0 listens.
//
// Each node has a file of its own there, which it writes once a second: that it is alive, and what it does. A start is
// said once, in another file, by the lowest node that is there; link() lets only one node say it. Nobody's clock is
// compared with another's: a node is there while its file changes, and is waited for while it answers at its address.
// So a node that has died or was cut off from the others is left out, and one that comes again is in the next start.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::cli {

struct RendezvousOptions {
  std::string directory;  // on a file system that all nodes share; its users can read the job's token
  int nodes = 1;          // of the job; node 0 to nodes - 1
  int node = 0;           // this one
  std::string address;    // where other nodes reach this one; empty: the address of its way to other networks
  double timeout_s = 60;  // how long to wait for nodes that have not been seen yet
  int master_port = 0;    // 0: a free one
};

// One start of a job, as a launcher takes part in it.
struct JobStart {
  int first_rank = 0;  // of those here
  int ranks = 1;       // here
  int world = 1;       // in all
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string token;
};

class Rendezvous {
 public:
  // Error(kUnavailable) where the directory cannot be written, or the address is not this machine's.
  Rendezvous(RendezvousOptions options, std::string name);
  ~Rendezvous();  // leaves, as one that failed, unless leave() was called
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // This node is ready for the next start, with up to `most` ranks and rather with `ranks`; the job needs `least_world`
  // in all.
  void come(int ranks, int most, int least_world);
  // To be called again and again, until it says which start this node is in. Error(kDeadlineExceeded) where too few
  // nodes have come.
  std::optional<JobStart> meet();
  // The job's status, where the other nodes have ended it without this one, which is not in their last start.
  std::optional<int> ended() const;

  // To be called once a second while the ranks run: a node of this start that has left it before its ranks were done.
  std::optional<int> who_left();
  void leave(int status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
