#include "rendezvous.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "door.h"
#include "resolve.h"
#include "tessera/sdk/pair_failures.h"

namespace tessera::tcp {
namespace {

using asio::use_awaitable;
using boost::system::error_code;
using std::chrono::milliseconds;

// A message from rank 0 to the ranks that have arrived: a Notice, then `bytes` bytes.
enum class NoticeKind : uint32_t {
  kWaiting = 1,  // text to report if the deadline passes now: the ranks that have not arrived
  kMet = 2,      // the group's id, then one Address per rank, or only the teacher's
  kRefused = 3   // the reason why meeting is impossible, as text
};
struct Notice {
  uint32_t magic = 0x4e525354;  // "TSRN"
  NoticeKind kind = NoticeKind::kWaiting;
  uint32_t bytes = 0;
  int32_t at_fault = -1;  // sdk::Blame::rank, if the message is a text
};
// Shortly before its deadline, a waiting rank sends one byte to ask for the missing ranks. Rank 0 answers with
// kWaiting.
constexpr std::chrono::seconds kAsksBefore{1};
constexpr milliseconds kAsksEvery{100};
// Time to send the last notice. All ranks that are not stopped read it at once.
constexpr std::chrono::seconds kFarewell{2};
constexpr uint32_t kMaxNotice = sizeof(GroupId) + kMaxRanks * sizeof(Address);

std::string notice(NoticeKind kind, std::string_view payload, int32_t at_fault = -1) {
  Notice head;
  head.kind = kind;
  head.at_fault = at_fault;
  head.bytes = static_cast<uint32_t>(payload.size());
  std::string message(sizeof(head), '\0');
  std::memcpy(message.data(), &head, sizeof(head));
  message += payload;
  return message;
}
std::string notice(NoticeKind kind, const sdk::Blame& blame) { return notice(kind, blame.text, blame.rank); }

// Throws the error as a Failure.
[[noreturn]] void fail_as(tsr_code code, const sdk::Blame& blame) { throw sdk::Failure(code, blame.text, blame.rank); }

std::string never_arrived(const std::string& ranks, const RendezvousOptions& options) {
  return "tcp: " + ranks + " of " + std::to_string(options.world_size) + " never arrived within " +
         sdk::seconds_text(options.timeout_s);
}

// The addresses on which rank 0 may listen.
std::vector<Endpoint> find_masters(const RendezvousOptions& options) {
  std::vector<Endpoint> masters;
  for (const asio::ip::address& address : resolve(options.master_addr, options.deadline)) {
    if (address.is_unspecified()) {
      sdk::fail(TSR_INVALID_ARGUMENT, "tcp: MASTER_ADDR \"", options.master_addr,
                "\" is not a machine's address: give the one of rank 0's machine");
    }
    if (options.token.empty() && !address.is_loopback()) {
      sdk::fail(TSR_PERMISSION_DENIED, "tcp: MASTER_ADDR \"", options.master_addr, "\" is not a loopback address, and ",
                "without a token only those are accepted: set the same TESSERA_JOB_TOKEN on every rank");
    }
    masters.emplace_back(address, options.master_port);
  }
  return masters;
}

// The common base of both sides: tasks on an io_context, with a deadline.
class Side {
 public:
  explicit Side(const RendezvousOptions& options) : options_(options), masters_(find_masters(options)) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

 protected:
  // Starts another task for run(). An exception of `task` ends run().
  void spawn(Task<> task) {
    asio::co_spawn(io_, std::move(task), [this](const std::exception_ptr& error) {
      if (error) stop(error);
    });
  }
  // Runs until stop(); returns false if the deadline passes first.
  bool run() {
    io_.run_until(options_.deadline);
    if (error_) std::rethrow_exception(error_);
    return stopped_;
  }
  void stop(std::exception_ptr error = nullptr) {
    error_ = std::move(error);
    stopped_ = true;
    io_.stop();
  }

  const RendezvousOptions& options_;
  const std::vector<Endpoint> masters_;
  asio::io_context io_{1};

 private:
  bool stopped_ = false;
  std::exception_ptr error_;
};

// Rank 0's side.
class Master : Side {
 public:
  explicit Master(const RendezvousOptions& options)
      : Side(options), arrived_(options.world_size), seen_(options.world_size) {}

  Meeting meet() {
    meeting_.addresses.resize(arrived_.size());
    meeting_.group = random_nonce();
    try {
      open();
      if (!run()) fail_as(TSR_DEADLINE_EXCEEDED, who_is_missing());
      dismiss();
    } catch (const sdk::Failure& failure) {
      dismiss(notice(NoticeKind::kRefused, failure.what(), failure.rank()));
      throw;
    }
    return meeting_;
  }

 private:
  using SocketPtr = std::shared_ptr<TcpSocket>;
  // Rank 0's state for one guest.
  struct Seat {
    explicit Seat(SocketPtr s) : socket(std::move(s)) {}
    SocketPtr socket;
    std::string next;  // next message, sent when the current one has been taken
    bool listening = false;
  };
  using SeatPtr = std::shared_ptr<Seat>;

  void open() {
    listen();
    own_ = door_->endpoint();
    at_ = " at " + to_text(own_);
    meeting_.addresses[0] = to_address({own_.address(), options_.listen(to_address(own_))});
    door_->expect(arrived_.size());
    door_->open([this](const SocketPtr& socket, const Hello& hello) { visit(socket, hello); });
  }

  // Listens at the first address that belongs to this machine.
  void listen() {
    std::string problem;
    for (const Endpoint& master : masters_) {
      try {
        door_.emplace(io_, DoorOptions{options_.host, options_.token, "rendezvous"}, master);
        return;
      } catch (const boost::system::system_error& e) {
        problem = "tcp: rank 0 cannot listen at " + to_text(master) + ": " + e.code().message();
        if (e.code() == asio::error::address_in_use) problem += "; choose another MASTER_PORT";
        if (e.code() == asio::error::access_denied) problem += "; choose a MASTER_PORT above 1023";
        if (e.code().value() == EADDRNOTAVAIL) problem += "; MASTER_ADDR must be an address of rank 0's machine";
      }
    }
    sdk::fail(TSR_UNAVAILABLE, problem);
  }

  void visit(const SocketPtr& socket, const Hello& hello) {
    error_code gone;
    const Endpoint from = socket->remote_endpoint(gone);
    if (over_) return;
    if (gone || hello.purpose != Purpose::kRendezvous || hello.rank == 0) {
      return door_->refuse(from, "it is not a rank at the rendezvous");
    }
    if (hello.world_size != options_.world_size || hello.rank >= options_.world_size) {
      const std::string text = "tcp: ranks disagree: rank " + std::to_string(hello.rank) + " says WORLD_SIZE is " +
                               std::to_string(hello.world_size) + ", rank 0 says " +
                               std::to_string(options_.world_size);
      tell(std::make_shared<Seat>(socket), notice(NoticeKind::kRefused, text));
      return stop(std::make_exception_ptr(sdk::Failure(TSR_INVALID_ARGUMENT, text)));
    }
    if (arrived_[hello.rank]) {
      tell(std::make_shared<Seat>(socket),
           notice(NoticeKind::kRefused,
                  "tcp: another process has already arrived as rank " + std::to_string(hello.rank) + " already"));
      return door_->refuse(from, "a second rank " + std::to_string(hello.rank));
    }
    const SeatPtr seat = arrived_[hello.rank] = std::make_shared<Seat>(socket);
    seen_[hello.rank] = true;
    meeting_.addresses[hello.rank] = to_address({from.address(), static_cast<uint16_t>(hello.port)});
    asio::co_spawn(io_, watch(hello.rank, seat), asio::detached);
    if (std::find(arrived_.begin() + 1, arrived_.end(), nullptr) == arrived_.end()) return stop();
    tell(seat, notice(NoticeKind::kWaiting, who_is_missing()));
  }

  // Reads a guest's questions. If the connection ends, the guest is gone.
  Task<> watch(int32_t rank, SeatPtr seat) {
    char question;
    error_code error;
    while (true) {
      co_await seat->socket->async_read_some(asio::buffer(&question, 1), asio::redirect_error(use_awaitable, error));
      if (over_ || arrived_[rank] != seat || error == asio::error::operation_aborted) co_return;
      if (error) break;
      tell(seat, notice(NoticeKind::kWaiting, who_is_missing()));
    }
    arrived_[rank] = nullptr;
    options_.host.log(TSR_LOG_WARNING, "tcp: rendezvous: rank " + std::to_string(rank) + " arrived and left again");
  }

  std::string met_notice(size_t rank) const {
    const auto bytes = [](const auto& of, size_t size) {
      return std::string_view(reinterpret_cast<const char*>(of), size);
    };
    std::string payload(bytes(meeting_.group.data(), sizeof(GroupId)));
    if (options_.world_size > kToldByRank0) {
      payload += bytes(&meeting_.addresses[teacher_of(static_cast<int32_t>(rank))], sizeof(Address));
    } else {
      payload += bytes(meeting_.addresses.data(), meeting_.addresses.size() * sizeof(Address));
    }
    return notice(NoticeKind::kMet, payload);
  }

  std::vector<int32_t> missing() const {
    return list([&](size_t rank) { return arrived_[rank] == nullptr; });
  }

  // The answer is the same for all ranks, whichever deadline comes first. A guest whose deadline came a moment earlier
  // has left, but all ranks waited for another one.
  sdk::Blame who_is_missing() const {
    const std::vector<int32_t> never = list([&](size_t rank) { return !seen_[rank]; });
    if (!never.empty()) {
      return {never_arrived(sdk::rank_list(never), options_) + at_ + loopback_hint(options_.master_addr, own_),
              never[0]};
    }
    const std::vector<int32_t> left = missing();
    return {"tcp: " + sdk::rank_list(left) + " arrived" + at_ + ", but left before all had", sdk::first_of(left)};
  }

  template <class Condition>
  std::vector<int32_t> list(Condition&& condition) const {
    std::vector<int32_t> ranks;
    for (size_t rank = 1; rank < arrived_.size(); ++rank) {
      if (condition(rank)) ranks.push_back(static_cast<int32_t>(rank));
    }
    return ranks;
  }

  // Sends a message to a guest. Messages are sent whole, and a newer one replaces one that is not being sent yet. Other
  // guests do not wait for one that does not read.
  void tell(const SeatPtr& seat, std::string message) {
    seat->next = std::move(message);
    if (std::exchange(seat->listening, true)) return;
    ++listening_;
    asio::co_spawn(io_, talk_to(seat), asio::detached);
  }
  Task<> talk_to(SeatPtr seat) {
    error_code gone;
    while (!gone && !seat->next.empty()) {
      const std::string message = std::exchange(seat->next, {});
      co_await asio::async_write(*seat->socket, asio::buffer(message), asio::redirect_error(use_awaitable, gone));
    }
    seat->listening = false;
    --listening_;
  }

  // Sends the last notice: `refusal`, or that all have met. A guest that died or does not read it will be missing when
  // the ranks connect.
  void dismiss(const std::string& refusal = "") {
    over_ = true;
    if (door_) door_->close();
    for (size_t rank = 1; rank < arrived_.size(); ++rank) {
      if (arrived_[rank]) tell(arrived_[rank], refusal.empty() ? met_notice(rank) : refusal);
    }
    io_.restart();
    const auto until = std::chrono::steady_clock::now() + kFarewell;
    while (listening_ > 0 && io_.run_one_until(until) > 0) {
    }
  }

  Meeting meeting_;
  std::vector<SeatPtr> arrived_;  // per rank; null if it is not connected
  std::vector<bool> seen_;        // per rank: true if it was ever connected
  std::optional<Door> door_;
  Endpoint own_;
  std::string at_;
  int listening_ = 0;  // guests that are being sent a message
  bool over_ = false;
};

// The side of every other rank.
class Guest : Side {
 public:
  explicit Guest(const RendezvousOptions& options) : Side(options) {}

  Meeting meet() {
    spawn(visit());
    if (!run()) {
      if (!who_is_missing_.text.empty()) fail_as(TSR_DEADLINE_EXCEEDED, who_is_missing_);
      fail_as(TSR_DEADLINE_EXCEEDED,
              {never_arrived("rank 0", options_) + " at " + options_.master_addr + ":" +
                   std::to_string(options_.master_port) + (problem_.empty() ? "" : " (last try: " + problem_ + ")"),
               0});
    }
    return meeting_;
  }

 private:
  Task<> visit() {
    milliseconds pause{10};
    while (true) {
      for (const Endpoint& master : masters_) {
        auto socket = std::make_shared<TcpSocket>(io_);
        if (!co_await arrive(socket, master)) continue;
        spawn(ask(socket));
        co_await listen_to(*socket);
        stop();
        co_return;
      }
      asio::steady_timer timer(io_, pause);
      co_await timer.async_wait(use_awaitable);
      pause = std::min(pause * 2, milliseconds(250));
    }
  }

  // Returns false if rank 0 is not there (yet).
  Task<bool> arrive(std::shared_ptr<TcpSocket> socket, Endpoint master) {
    std::optional<Cutoff> cutoff(std::in_place, socket, kCallFor);
    try {
      Route route{.to = to_address(master), .caller = options_.rank};
      co_await call(*socket, route, options_.proxied);
      Hello hello{.rank = options_.rank,
                  .world_size = options_.world_size,
                  .port = options_.listen(to_address(socket->local_endpoint()))};
      co_await knock(*socket, options_.token, hello, route.to, [&] { cutoff.emplace(socket, kProveFor); });
      co_return true;
    } catch (const boost::system::system_error& e) {
      problem_ = to_text(master) + ": " + (socket->is_open() ? e.code().message() : "no answer");
      co_return false;
    }
  }

  Task<> ask(std::shared_ptr<TcpSocket> socket) {
    using std::chrono::steady_clock;
    const auto left = options_.deadline - steady_clock::now();
    asio::steady_timer timer(io_, options_.deadline - std::min<steady_clock::duration>(kAsksBefore, left / 2));
    const char question = '?';
    for (error_code gone; !gone; timer.expires_after(kAsksEvery)) {
      co_await timer.async_wait(use_awaitable);
      co_await asio::async_write(*socket, asio::buffer(&question, 1), asio::redirect_error(use_awaitable, gone));
    }
  }

  Task<> listen_to(TcpSocket& socket) {
    while (true) {
      Notice head;
      std::string payload;
      error_code error;
      co_await asio::async_read(socket, asio::buffer(&head, sizeof(head)), asio::redirect_error(use_awaitable, error));
      if (!error && (head.magic != Notice{}.magic || head.bytes > kMaxNotice)) error = asio::error::invalid_argument;
      if (!error) {
        payload.resize(head.bytes);
        co_await asio::async_read(socket, asio::buffer(payload), asio::redirect_error(use_awaitable, error));
      }
      if (error) fail_as(TSR_ABORTED, {"tcp: rank 0 died while the ranks were meeting (" + error.message() + ")", 0});
      if (head.kind == NoticeKind::kMet) co_return read_meeting(payload);
      sdk::Blame said{sdk::safe_text(payload.data(), payload.size()), head.at_fault};
      if (said.text.empty()) said.text = "tcp: rank 0 gave no reason";
      if (head.kind == NoticeKind::kWaiting) who_is_missing_ = said;
      if (head.kind == NoticeKind::kRefused) fail_as(TSR_ABORTED, said);
    }
  }

  void read_meeting(const std::string& payload) {
    const bool has_teacher = options_.world_size > kToldByRank0;
    if (!has_teacher) meeting_.addresses.resize(static_cast<size_t>(options_.world_size));
    const size_t bytes = has_teacher ? sizeof(Address) : meeting_.addresses.size() * sizeof(Address);
    if (payload.size() != sizeof(GroupId) + bytes) {
      fail_as(TSR_DATA_LOSS, {"tcp: rank 0 sent a damaged list of addresses", 0});
    }
    std::memcpy(meeting_.group.data(), payload.data(), sizeof(GroupId));
    std::memcpy(has_teacher ? &meeting_.teacher : meeting_.addresses.data(), payload.data() + sizeof(GroupId), bytes);
  }

  Meeting meeting_;
  sdk::Blame who_is_missing_;  // rank 0's last message
  std::string problem_;
};

}  // namespace

Meeting meet(const RendezvousOptions& options) {
  if (options.rank == 0) return Master(options).meet();
  return Guest(options).meet();
}

}  // namespace tessera::tcp
