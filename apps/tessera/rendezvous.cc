#include "rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

#include "processes.h"
#include "spawn.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Seconds after which the node of an unchanged file is considered gone.
constexpr double kSilence = 30;
constexpr double kBeat = 1;
// Time for a node to answer. Launchers have little else to do.
constexpr std::chrono::milliseconds kAnswer{2000};

// The note of a node: one line, written in place. The line starts and ends with the same beat, so that a half-written
// line is not taken for a whole one.
struct Note {
  enum State { kComing = 0, kRunning = 1, kDone = 2 };
  int64_t beat = 0;  // changes with every write; each launcher begins with a number of its own
  int state = kComing;
  int64_t number = 0;  // number of the start that the node comes for or runs; status of a start that is done
  int ranks = 0;
  int port = 0;
  std::string address;

  std::string text() const {
    std::string line = str_cat(beat, " ", state, " ", number, " ", ranks, " ", port, " ", address, " ", beat);
    line.resize(255, ' ');
    return line + "\n";
  }
  static std::optional<Note> read(const std::string& path) {
    std::ifstream in(path);
    Note note;
    int64_t again = -1;
    in >> note.beat >> note.state >> note.number >> note.ranks >> note.port >> note.address >> again;
    return in && again == note.beat ? std::optional(note) : std::nullopt;
  }
};

// A start as its file describes it.
struct Said {
  int ranks = 0;  // ranks per node
  std::string master_addr;
  int master_port = 0;
  std::string token;
  std::vector<int> nodes;

  std::string text() const {
    std::string line = str_cat(ranks, " ", master_addr, " ", master_port, " ", token);
    for (int node : nodes) line += str_cat(" ", node);
    return line + " end\n";
  }
  static std::optional<Said> read(const std::string& path) {
    std::ifstream in(path);
    Said said;
    in >> said.ranks >> said.master_addr >> said.master_port >> said.token;
    for (int node = 0; in >> node;) said.nodes.push_back(node);
    return said.nodes.empty() ? std::nullopt : std::optional(said);
  }
};

std::string list_of(const std::vector<int>& nodes) {
  std::string text = nodes.size() == 1 ? "node" : "nodes";
  for (size_t i = 0; i < nodes.size(); ++i) text += str_cat(i == 0 ? " " : ", ", nodes[i]);
  return text;
}

// The address of this machine's route to other networks; no packet is sent.
std::string own_address() {
  asio::io_context io;
  asio::ip::udp::socket socket(io, asio::ip::udp::v4());
  error_code none;
  socket.connect({asio::ip::make_address("192.0.2.1"), 9}, none);
  return none ? "127.0.0.1" : socket.local_endpoint().address().to_string();
}

enum class Answer { kNone, kRefused, kGiven };

// Calls the nodes with these notes and returns their answers.
std::vector<Answer> call(const std::vector<const Note*>& notes) {
  asio::io_context io;
  std::vector<Answer> answers(notes.size(), Answer::kNone);
  std::vector<std::unique_ptr<tcp::socket>> sockets;
  for (size_t i = 0; i < notes.size(); ++i) {
    sockets.push_back(std::make_unique<tcp::socket>(io));
    error_code wrong;
    const auto address = asio::ip::make_address(notes[i]->address, wrong);
    if (wrong) continue;
    sockets.back()->async_connect({address, static_cast<uint16_t>(notes[i]->port)}, [&answers, i](error_code failed) {
      if (!failed) answers[i] = Answer::kGiven;
      if (failed == asio::error::connection_refused) answers[i] = Answer::kRefused;
    });
  }
  io.run_for(kAnswer);
  return answers;
}

}  // namespace

struct Rendezvous::Impl {
  // Another node, as last seen.
  struct Seen {
    std::optional<Note> note;
    std::optional<Deadline> gone_at;  // unset if the node has not been seen to do anything yet

    bool is_there() const { return gone_at && !is_gone(); }
    bool is_gone() const { return gone_at && Clock::now() >= *gone_at; }
  };

  Impl(RendezvousOptions options_, std::string name_)
      : options(std::move(options_)), name(std::move(name_)), acceptor(io), seen(static_cast<size_t>(options.nodes)) {
    std::error_code problem;
    std::filesystem::create_directories(options.directory, problem);
    own.address = options.address.empty() ? own_address() : options.address;
    listen();
    own.beat = std::stoll(random_token().substr(0, 12), nullptr, 16);
    file = open(path("node", options.node).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) fail(Code::kUnavailable, "cannot meet in ", options.directory, ": ", system_error());
  }
  ~Impl() { close(file); }

  void listen() try {
    const tcp::endpoint at(asio::ip::make_address(own.address), 0);
    acceptor.open(at.protocol());
    acceptor.bind(at);
    acceptor.listen();
    acceptor.non_blocking(true);
    fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    own.port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& e) {
    fail(Code::kUnavailable, "cannot listen at ", own.address, ": ", e.code().message(),
         "; give this machine's address with --local-addr");
  }

  std::string path(const char* what, int64_t which) const { return str_cat(options.directory, "/", what, "-", which); }
  void say(const std::string& line) const { std::cerr << name + ": " + line + '\n' << std::flush; }

  void write() {
    ++own.beat;
    const std::string text = own.text();
    if (pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) || fdatasync(file) != 0) {
      if (!std::exchange(warned, true)) say(str_cat("cannot write to ", options.directory, ": ", system_error()));
    }
    next_beat = after(kBeat);
  }

  // Shows that this node is alive and looks at the others, but not more often than useful.
  void look() {
    if (Clock::now() >= next_beat) write();
    error_code nobody;
    do {  // callers who check whether this node answers
      tcp::socket caller(io);
      acceptor.accept(caller, nobody);
    } while (!nobody);
    if (Clock::now() < next_look) return;
    for (int node = 0; node < options.nodes; ++node) {
      if (node != options.node) look_at(node);
    }
    next_look = after(0.02 * options.nodes);  // with many nodes less often, to spare the directory's file server
  }
  void look_at(int node) {
    Seen& other = seen[static_cast<size_t>(node)];
    const std::optional<Note> now = Note::read(path("node", node));
    if (!now) return;
    if (other.note && now->beat != other.note->beat) other.gone_at = after(kSilence);
    other.note = now;
  }

  // The number of the last start; 0 if there was none.
  int64_t last_start() const {
    int64_t last = 0;
    std::error_code problem;
    for (const auto& entry : std::filesystem::directory_iterator(options.directory, problem)) {
      const std::string is = entry.path().filename().string();
      if (is.starts_with("start-")) last = std::max<int64_t>(last, std::atoll(is.c_str() + 6));
    }
    return last;
  }
  bool is_in(const Said& said) const {
    return std::find(said.nodes.begin(), said.nodes.end(), options.node) != said.nodes.end();
  }

  // Refuses a secret file that others can read, because a reader of the job's token can take part in the job.
  void check_secret(const std::string& file) const {
    struct stat info {};
    if (stat(file.c_str(), &info) != 0 || (info.st_mode & (S_IRGRP | S_IROTH)) == 0) return;
    say(str_cat("warning: ", file,
                " holds the job's token, and others can read it: --rendezvous needs a directory on a "
                "file system that keeps modes"));
  }

  JobStart take_part(const Said& said) {
    check_secret(path("start", number));
    members = said.nodes;
    own.state = Note::kRunning;
    write();
    const auto index = std::find(members.begin(), members.end(), options.node) - members.begin();
    JobStart start;
    start.ranks = said.ranks;
    start.first_rank = static_cast<int>(index) * said.ranks;
    start.world = static_cast<int>(members.size()) * said.ranks;
    start.master_addr = said.master_addr;
    start.master_port = said.master_port;
    start.token = said.token;
    say(str_cat("start ", number, " of the job: ", said.ranks, said.ranks == 1 ? " rank" : " ranks", " on each of ",
                list_of(members)));
    return start;
  }

  // If this node is the one to announce the start, and the nodes that will come have come, announces it.
  void say_start() {
    std::vector<int> present, awaited;
    for (int node = 0; node < options.nodes; ++node) {
      const Seen& other = seen[static_cast<size_t>(node)];
      const bool comes = other.is_there() && other.note->state == Note::kComing && other.note->number == number;
      if (node == options.node || comes) {
        present.push_back(node);
      } else if (other.is_there() ? other.note->state != Note::kDone : !other.gone_at) {
        awaited.push_back(node);
      }
    }
    const bool too_late = Clock::now() >= deadline;
    // A node that still runs an earlier start will come soon, unless its launcher was killed.
    keep(awaited, [](Answer answer) { return answer != Answer::kRefused; });
    if (!awaited.empty() && !too_late) return;
    std::vector<int> members = present;
    keep(members, [](Answer answer) { return answer == Answer::kGiven; });
    // If the nodes have split into groups that do not reach each other, the largest goes on; of two equal ones, that of
    // the lowest node.
    const size_t twice = 2 * members.size();
    const bool best = twice > present.size() || (twice == present.size() && members.front() == present.front());
    if (!best || members.front() != options.node) return;
    const auto count = static_cast<int>(members.size());
    if (count * most >= least_world) return publish(members);
    if (!too_late) return;
    fail(Code::kDeadlineExceeded, "only ", list_of(members), " of ", options.nodes, " came to ", options.directory,
         " within ", options.timeout_s, " s, but the job needs ", least_world,
         " ranks: start the other launchers, or let it continue with fewer ranks (--elastic MIN:MAX)");
  }

  // Calls the nodes that have been seen, and keeps those that give the wanted answer. Also keeps this node and those
  // not seen yet.
  template <class Wanted>
  void keep(std::vector<int>& nodes, Wanted&& wanted) {
    std::vector<int> called;
    std::vector<const Note*> notes;
    for (int node : nodes) {
      const Seen& other = seen[static_cast<size_t>(node)];
      if (node == options.node || !other.is_there()) continue;
      called.push_back(node);
      notes.push_back(&*other.note);
    }
    const std::vector<Answer> answers = call(notes);
    for (size_t i = 0; i < called.size(); ++i) {
      if (!wanted(answers[i])) std::erase(nodes, called[i]);
    }
  }

  void publish(const std::vector<int>& nodes) {
    const auto count = static_cast<int>(nodes.size());
    Said said;
    said.ranks = own.ranks;
    for (int node : nodes) {
      if (node != options.node) said.ranks = std::min(said.ranks, seen[static_cast<size_t>(node)].note->ranks);
    }
    said.ranks = std::max(said.ranks, (least_world + count - 1) / count);
    said.master_addr = own.address;
    said.master_port = options.master_port != 0 ? options.master_port : free_port();
    said.token = random_token();
    said.nodes = nodes;
    write_start(said);
  }

  void write_start(const Said& said) {
    const std::string draft = path("draft", options.node), text = said.text();
    unlink(draft.c_str());  // the next draft may be readable by others
    const int out = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool written =
        out >= 0 && ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(out) == 0;
    if (out >= 0) close(out);
    // Another node may have announced it first; then that announcement counts.
    if (!written || (link(draft.c_str(), path("start", number).c_str()) != 0 && errno != EEXIST))
      fail(Code::kUnavailable, "cannot write to ", options.directory, ": ", system_error());
    unlink(draft.c_str());
    if (number > 2) unlink(path("start", number - 2).c_str());
  }

  RendezvousOptions options;
  std::string name;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  int file = -1;
  Note own;
  std::vector<Seen> seen;  // per node
  int64_t number = 0;      // number of the start that this node is in or waits for
  int most = 1, least_world = 1;
  std::vector<int> members;  // nodes in that start
  Deadline deadline, next_beat, next_look;
  bool left_out = false, warned = false, left = false;
};

Rendezvous::Rendezvous(RendezvousOptions options, std::string name)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(name))) {}

Rendezvous::~Rendezvous() {
  if (!impl_->left) leave(1);
}

void Rendezvous::come(int ranks, int most, int least_world) {
  Impl& i = *impl_;
  i.own.state = Note::kComing;
  const int64_t last = i.last_start();
  i.left_out = last != i.number;
  i.own.number = i.number = last + 1;
  i.own.ranks = ranks;
  i.most = most;
  i.least_world = least_world;
  i.deadline = after(i.options.timeout_s);
  i.write();
  i.say(str_cat("node ", i.options.node, " meets the others in ", i.options.directory, " for start ", i.number,
                " of the job"));
}

std::optional<JobStart> Rendezvous::meet() {
  Impl& i = *impl_;
  i.look();
  if (const int64_t last = i.last_start(); last >= i.number) {
    const std::optional<Said> said = Said::read(i.path("start", i.number));
    if (said && i.is_in(*said)) return i.take_part(*said);
    i.say(str_cat("start ", last, " of the job is without this node, which waits for the next"));
    i.own.number = i.number = last + 1;
    i.left_out = true;
    i.write();
  }
  for (const Impl::Seen& other : i.seen) {  // another running node may take its time
    if (i.left_out && other.is_there() && other.note->state == Note::kRunning) i.deadline = after(i.options.timeout_s);
  }
  if (!ended()) i.say_start();
  return std::nullopt;
}

std::optional<int> Rendezvous::ended() const {
  if (!impl_->left_out) return std::nullopt;
  std::optional<int> status;
  for (const Impl::Seen& other : impl_->seen) {
    if (!other.is_there()) continue;
    if (other.note->state != Note::kDone) return std::nullopt;
    status = static_cast<int>(other.note->number);
  }
  return status;
}

std::optional<int> Rendezvous::who_left() {
  Impl& i = *impl_;
  i.look();
  for (const int node : i.members) {
    const Impl::Seen& other = i.seen[static_cast<size_t>(node)];
    if (node == i.options.node || !other.note) continue;
    // A node whose note says "done" ended in good order; its ranks have told the ranks here.
    const bool elsewhere = other.note->state != Note::kDone && other.note->number > i.number;
    if (elsewhere || other.is_gone()) return node;
  }
  return std::nullopt;
}

void Rendezvous::leave(int status) {
  impl_->left = true;
  impl_->own.state = Note::kDone;
  impl_->own.number = status;
  impl_->write();
}

}  // namespace tessera::cli
