// shaped_links RATE_BITS DELAY_US NAMESPACE...: connects network namespaces as hosts at one switch.
//
// Each namespace gets a device link0. The host with number h (from 1) has the address 10.77.1.h. A packet leaves when
// those before it on its host's link have left, takes its size at RATE_BITS per second (0: no time), arrives DELAY_US
// later, and then waits for those before it on the link to its receiver. Nothing is lost, and no queue has a limit. The
// kernel hands over up to 64 KiB at once; these are counted as the Ethernet frames of 1,500 bytes that they stand for.
// Prints "ready" when the devices exist, and runs until it is ended.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Precedes each packet (struct virtio_net_hdr, which C++ cannot include).
struct Segments {
  uint8_t flags, type;  // type 0: one packet
  uint16_t header_bytes, payload_bytes, checksum_start, checksum_offset;
};
static_assert(sizeof(Segments) == 10);

constexpr size_t kMostBytes = sizeof(Segments) + 65536;
// Packets are looked at together, as network cards do before they interrupt a processor.
constexpr int64_t kTickNs = 50000;
constexpr double kFrameBytes = 14 + 4 + 8 + 12;  // Ethernet's header, checksum, preamble and gap

[[noreturn]] void end(const std::string& what) {
  std::fprintf(stderr, "shaped_links: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int device_in(const std::string& name) {
  const int there = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) != 0) end("namespace " + name);
  close(there);
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) end("/dev/net/tun");
  ifreq request = {};
  std::strcpy(request.ifr_name, "link0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(fd, TUNSETIFF, &request) != 0) end("TUNSETIFF");
  if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) end("TUNSETOFFLOAD");
  return fd;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

struct Host {
  int fd = -1;
  Clock::time_point sends_until, receives_until;  // when its link is free, in each direction
  std::deque<Packet> coming;                      // by `due`
};

// Bytes on the wire, as frames.
double wire_bytes(const std::vector<char>& packet) {
  Segments each;
  std::memcpy(&each, packet.data(), sizeof each);
  const double bytes = static_cast<double>(packet.size() - sizeof each);
  if (each.type == 0) return bytes + kFrameBytes;
  const double payload = bytes - each.header_bytes, frames = std::max(1.0, payload / each.payload_bytes);
  return payload + frames * (each.header_bytes + kFrameBytes);
}

// Number of the host to which a packet of IPv4 goes, from 0; -1 for any other packet.
int receiver(const std::vector<char>& packet) {
  const char* ip = packet.data() + sizeof(Segments);
  if (packet.size() < sizeof(Segments) + 20 || (ip[0] >> 4) != 4 || ip[16] != 10 || ip[17] != 77) return -1;
  return static_cast<unsigned char>(ip[19]) - 1;
}

class Switch {
 public:
  Switch(double bits, double delay_us, const std::vector<std::string>& names)
      : seconds_per_byte_(bits > 0 ? 8 / bits : 0), delay_(seconds(delay_us * 1e-6)), hosts_(names.size()) {
    for (size_t i = 0; i < names.size(); ++i) hosts_[i].fd = device_in(names[i]);
  }

  void run() {
    std::vector<pollfd> polled;
    for (const Host& host : hosts_) polled.push_back({host.fd, POLLIN, 0});
    while (true) {
      const Clock::time_point next = deliver();
      const auto left = std::max<Clock::duration>(next - Clock::now(), Clock::duration::zero());
      const int64_t ns = std::min<int64_t>(left.count(), 1000000000);
      const timespec wait{ns / 1000000000, ns % 1000000000};
      if (ppoll(polled.data(), polled.size(), &wait, nullptr) < 0 && errno != EINTR) end("ppoll");
      sleep_until_tick();
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if ((polled[i].revents & POLLIN) != 0) take(hosts_[i]);
      }
    }
  }

 private:
  static void sleep_until_tick() {
    const int64_t now = Clock::now().time_since_epoch().count(), tick = (now / kTickNs + 1) * kTickNs;
    const timespec until{tick / 1000000000, tick % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
  static Clock::duration seconds(double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }

  void take(Host& from) {
    for (int i = 0; i < 64; ++i) {
      std::vector<char> bytes = std::move(spare_);
      bytes.resize(kMostBytes);
      const ssize_t got = read(from.fd, bytes.data(), bytes.size());
      if (got <= 0) {
        spare_ = std::move(bytes);
        return;
      }
      bytes.resize(static_cast<size_t>(got));
      const int to = receiver(bytes);
      if (to < 0 || to >= static_cast<int>(hosts_.size())) continue;
      const Clock::duration takes = seconds(wire_bytes(bytes) * seconds_per_byte_);
      Host& host = hosts_[static_cast<size_t>(to)];
      const Clock::time_point leaves = std::max(Clock::now(), from.sends_until);
      from.sends_until = leaves + takes;
      // Its first frame arrives while others of it still leave.
      host.receives_until = std::max(leaves + delay_, host.receives_until) + takes;
      host.coming.push_back({host.receives_until, std::vector<char>(bytes)});
      spare_ = std::move(bytes);
    }
  }

  // Hands over all packets that are due. Returns when the next one is.
  Clock::time_point deliver() {
    Clock::time_point next = Clock::time_point::max();
    for (Host& host : hosts_) {
      while (!host.coming.empty() && host.coming.front().due <= Clock::now()) {
        const std::vector<char>& bytes = host.coming.front().bytes;
        // A device without memory for it drops the packet, and TCP sends it again.
        if (write(host.fd, bytes.data(), bytes.size()) < 0 && errno != ENOMEM && errno != ENOBUFS && errno != EAGAIN)
          end("write");
        host.coming.pop_front();
      }
      if (!host.coming.empty()) next = std::min(next, host.coming.front().due);
    }
    return next;
  }

  const double seconds_per_byte_;
  const Clock::duration delay_;
  std::vector<Host> hosts_;
  std::vector<char> spare_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: shaped_links RATE_BITS DELAY_US NAMESPACE...\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param first{.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) end("sched_setscheduler");
  Switch links(std::atof(argv[1]), std::atof(argv[2]), {argv + 3, argv + argc});
  std::puts("ready");
  std::fflush(stdout);
  links.run();
}
