#include "columnar/python_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

#include "columnar/frames_script.h"

namespace tessera_readers {
namespace {

// Precedes the first frame (frames.py), because Python's start-up files may print something.
constexpr std::string_view kGreeting = "tessera-arrow-frames-1\n";

std::string system_says(int code) { return std::error_code(code, std::generic_category()).message(); }

std::string seconds_of(double seconds) {
  std::string out = std::to_string(seconds);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.ends_with('.')) out.pop_back();
  return out + " s";
}

// Prepares a child: our ends of its standard streams, default signals, and a process group of its own. Ctrl-C at a
// terminal lets a job save and end, and must not reach the child.
class Spawn {
 public:
  Spawn(int in, int out, int err) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_adddup2(&actions_, in, 0);
    posix_spawn_file_actions_adddup2(&actions_, out, 1);
    posix_spawn_file_actions_adddup2(&actions_, err, 2);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
#endif
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  int run(std::string program, pid_t* pid) {
    std::string script(kFramesScript), option = "-c";
    const std::array<char*, 4> arguments = {program.data(), option.data(), script.data(), nullptr};
    return posix_spawnp(pid, program.c_str(), &actions_, &attributes_, arguments.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

PythonChild::PythonChild(PythonOptions options) : options_(std::move(options)), owner_(::getpid()) { start(); }

void PythonChild::start() {
  std::array<int, 2> commands{}, answers{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, commands.data()) != 0)
    throw PythonLost("no pipe to " + python() + " can be made: " + system_says(errno));
  commands_ = Descriptor(commands[0]);
  const Descriptor its_commands(commands[1]);
  if (::pipe2(answers.data(), O_CLOEXEC) != 0)
    throw PythonLost("no pipe from " + python() + " can be made: " + system_says(errno));
  answers_ = Descriptor(answers[0]);
  const Descriptor its_answers(answers[1]);
  constexpr int kPipeBytes = 1 << 20;
  (void)::fcntl(answers_.get(), F_SETPIPE_SZ, kPipeBytes);  // only a hint, so a refusal does not matter
  errors_ = Descriptor(::memfd_create("tessera-python-errors", MFD_CLOEXEC));
  if (errors_.get() < 0) throw PythonLost("no memory for what " + python() + " says: " + system_says(errno));
  const double whole = std::floor(options_.timeout_s);
  const timeval most{static_cast<time_t>(whole), static_cast<suseconds_t>(1e6 * (options_.timeout_s - whole))};
  (void)::setsockopt(commands_.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
  Spawn spawn(its_commands.get(), its_answers.get(), errors_.get());
  if (const int code = spawn.run(python(), &pid_); code != 0) {
    pid_ = -1;
    throw PythonLost("\"" + python() + "\" cannot be started: " + system_says(code));
  }
}

PythonChild::~PythonChild() { end(); }

// Closing its pipes ends the child; if it does not end soon, a signal does.
void PythonChild::end() {
  commands_.reset();
  answers_.reset();
  if (pid_ <= 0 || owner_ != ::getpid()) return;
  constexpr int kTries = 100;
  constexpr auto kPause = std::chrono::milliseconds(5);
  for (int i = 0; i < kTries; ++i) {
    const pid_t ended = ::waitpid(pid_, nullptr, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno == ECHILD)) pid_ = -1;
    if (pid_ < 0) return;
    std::this_thread::sleep_for(kPause);
  }
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

// The last line that the child wrote to standard error.
std::string PythonChild::last_words() const {
  constexpr off_t kMost = 4096;
  const off_t size = ::lseek(errors_.get(), 0, SEEK_END), from = std::max<off_t>(0, size - kMost);
  std::string text(static_cast<size_t>(std::max<off_t>(0, size - from)), '\0');
  const ssize_t got = ::pread(errors_.get(), text.data(), text.size(), from);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);
}

void PythonChild::lose(const std::string& why) {
  const std::string said = last_words();
  lost_ = python() + " " + why + (said.empty() ? "" : ": " + said);
  if (pid_ > 0 && owner_ == ::getpid()) ::kill(pid_, SIGKILL);
  end();
  throw PythonLost(lost_);
}

void PythonChild::tell(const std::string& command) {
  if (!lost_.empty()) throw PythonLost(lost_);
  const std::string line = command + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(commands_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) lose(errno == EAGAIN ? "has accepted no command for " + seconds_of(options_.timeout_s) : "has ended");
    sent += static_cast<size_t>(n);
  }
}

PythonFrame PythonChild::ask(const std::string& command) {
  if (asked_ != command) {
    if (!asked_.empty()) (void)receive();
    tell(command);
  }
  return receive();
}

void PythonChild::ask_ahead(const std::string& command) {
  tell(command);
  asked_ = command;
}

// Reads exactly `bytes` bytes.
void PythonChild::read(void* to, int64_t bytes) {
  auto* at = static_cast<char*>(to);
  const int most_ms = static_cast<int>(std::min(1e9, 1e3 * options_.timeout_s));
  while (bytes > 0) {
    pollfd wait{answers_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, most_ms);
    if (ready == 0)
      lose("has sent nothing for " + seconds_of(options_.timeout_s) + " (the option timeout_s) and was ended");
    const ssize_t n = ready < 0 ? -1 : ::read(answers_.get(), at, static_cast<size_t>(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) lose("has ended");
    at += n;
    bytes -= n;
  }
}

void PythonChild::skip_to_greeting() {
  constexpr size_t kMost = 1 << 16;
  std::string seen;
  while (!seen.ends_with(kGreeting)) {
    if (seen.size() > kMost) lose("has printed unexpected output");
    char next = 0;
    read(&next, 1);
    seen += next;
  }
  greeted_ = true;
}

PythonFrame PythonChild::receive() {
  if (!lost_.empty()) throw PythonLost(lost_);
  asked_.clear();
  if (!greeted_) skip_to_greeting();
  std::array<int64_t, 4> header{};  // kind, bytes of the head, bytes of the body, 0
  read(header.data(), sizeof(header));
  constexpr int64_t kMostHead = int64_t{1} << 30, kMostBody = int64_t{1} << 42, kLine = 64;
  if (header[1] < 0 || header[1] > kMostHead || header[2] < 0 || header[2] > kMostBody || header[2] % kLine != 0)
    lose("has answered with something that is not a frame");
  PythonFrame out{.kind = static_cast<char>(header[0])};
  out.head.resize(static_cast<size_t>(header[1]));
  read(out.head.data(), header[1]);
  out.body_size = header[2];
  out.body.reset(static_cast<std::byte*>(std::aligned_alloc(kLine, static_cast<size_t>(header[2] + kLine))));
  if (out.body == nullptr) throw std::bad_alloc();
  read(out.body.get(), header[2]);
  return out;
}

}  // namespace tessera_readers
