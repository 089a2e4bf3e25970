// Tests how ranks meet, which files a killed job leaves, and which ranks are refused. `tessera verify` checks the
// groups themselves.
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "unix.cc"

namespace {

std::string work;  // temporary folder of this test

std::unique_ptr<Group> connect(int32_t rank, const char* token, double timeout_s = 10, int32_t local = 2) {
  Options options("{\"folder\": \"" + work + "\"}");
  Unix transport(Setup{Host(nullptr), options, nullptr});
  tsr_rendezvous where{};
  where.struct_size = sizeof(where);
  where.rank = where.local_rank = rank;
  where.world_size = 2;
  where.local_world_size = local;
  where.master_port = 4711;
  where.token = token;
  where.timeout_s = timeout_s;
  return transport.connect(where);
}

std::string folder() { return work + "/tessera-" + std::to_string(geteuid()) + "-4711"; }
bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
int mode_of(const std::string& path) {
  struct stat is {};
  return lstat(path.c_str(), &is) == 0 ? static_cast<int>(is.st_mode & 0777) : -1;
}

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "no failure";
}
void require_says(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "\"" + text + "\" does not say \"" + part + "\"");
}

// Connects both ranks. Returns the text of each one's exception.
std::array<std::string, 2> in_threads(const std::function<void(int32_t rank)>& body) {
  std::array<std::string, 2> said;
  std::thread other([&] { said[1] = failure_of([&] { body(1); }); });
  said[0] = failure_of([&] { body(0); });
  other.join();
  return said;
}

void a_killed_job_leaves_what_the_next_takes_away() {
  require(mkdir(folder().c_str(), 0700) == 0, "cannot make " + folder());
  const sockaddr_un left = address_of({folder(), "", "all", 1, 0, {0, 1}}, 0);
  require(bind(new_socket().get(), any(left), sizeof(left)) == 0 && exists(left.sun_path), "nothing is left behind");
  for (const std::string& said : in_threads([&](int32_t rank) {
         if (rank == 1) {  // rank 0 waits meanwhile
           while (mode_of(left.sun_path) != 0700) std::this_thread::sleep_for(std::chrono::milliseconds(1));
           require(mode_of(folder()) == 0700, "others may enter the folder");
         }
         const std::unique_ptr<Group> group = connect(rank, "secret");
         const auto half = group->split(0, 0, named_call("split"));
         finish(half->barrier(named_call("in the half")));
       }))
    require(said == "no failure", said);
  require(!exists(folder()), folder() + " is left behind");
}

void another_token_is_not_let_in() {
  const auto said = in_threads([](int32_t rank) { connect(rank, rank == 0 ? "one" : "another", 1); });
  require_says(said[0], "unix: rank 1 did not connect to rank 0 within 1 s");
  require_says(said[1], "unix: rank 0 has another job token");
}

void a_folder_that_others_may_enter_is_not_used() {
  require(mkdir(folder().c_str(), 0700) == 0 && chmod(folder().c_str(), 0755) == 0, "cannot make " + folder());
  require_says(failure_of([] { connect(0, "", 1); }), "is not a folder that only this user may enter");
  rmdir(folder().c_str());
}

void hosts_and_tokens_that_cannot_be() {
  require_says(failure_of([] { connect(0, "", 1, 1); }), "it connects only ranks of one host; use tcp");
  require_says(failure_of([] { connect(0, std::string(300, 'x').c_str(), 1); }), "token has more than");
}

}  // namespace

int main() {
  char name[] = "/tmp/unix-test-XXXXXX";
  require(mkdtemp(name) != nullptr, "no folder for the test");
  work = name;
  a_killed_job_leaves_what_the_next_takes_away();
  another_token_is_not_let_in();
  a_folder_that_others_may_enter_is_not_used();
  hosts_and_tokens_that_cannot_be();
  rmdir(name);
}
