// Lets the launchers of several nodes meet before each start of a job, in a directory that all of them see. They agree
// on the nodes that take part, their numbers of ranks, and the address at which rank 0 listens.
//
// Each node has a file there, which it rewrites once a second to show that it is alive and what it does. The lowest
// node present announces a start in another file; link() lets only one node do so. Clocks of different nodes are never
// compared: a node is present while its file changes, and is waited for while it answers at its address. A node that
// has died or was cut off from the others is therefore left out, and joins the next start when it comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::cli {

struct RendezvousOptions {
  std::string directory;  // on a file system shared by all nodes; its users can read the job's token
  int nodes = 1;          // nodes of the job, numbered 0 to nodes - 1
  int node = 0;           // number of this node
  std::string address;    // address at which other nodes reach this one; empty: that of its route to other networks
  double timeout_s = 60;  // how long to wait for nodes that have not been seen yet
  int master_port = 0;    // 0: choose a free port
};

// One start of a job, as seen by one launcher.
struct JobStart {
  int first_rank = 0;  // first rank on this node
  int ranks = 1;       // ranks on this node
  int world = 1;       // ranks on all nodes
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string token;
};

class Rendezvous {
 public:
  // Throws kUnavailable if the directory cannot be written, or if the address is not this machine's.
  Rendezvous(RendezvousOptions options, std::string name);
  ~Rendezvous();  // leaves as a failed node, unless leave() was called
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Tells the others that this node is ready for the next start, preferably with `ranks` ranks and at most `most`. The
  // job needs `least_world` ranks in all.
  void come(int ranks, int most, int least_world);
  // Returns the next start that includes this node; unset: not yet, so call it again. Throws kDeadlineExceeded if too
  // few nodes have come.
  std::optional<JobStart> meet();
  // Returns the job's status if the job has ended in a start that left this node out.
  std::optional<int> ended() const;

  // Call this once a second while the ranks run. Returns a node of this start that has left before its ranks were done.
  std::optional<int> who_left();
  void leave(int status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
