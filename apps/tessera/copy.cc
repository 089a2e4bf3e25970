// tessera copy: brings files of an object store here, and takes files there. A Python process does it, by the file
// systems of pyarrow.
#include <unistd.h>

#include <iostream>

#include "command.h"
#include "copy_script.h"
#include "options.h"
#include "processes.h"
#include "tessera/sdk/draft/reader_paths.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr char kAboutCopying[] =
    "Copies a file, or a folder with all below it, between this machine and an object store: training data and models "
    "here, checkpoints and models there. One of FROM and TO is a URL: s3://BUCKET/KEY, gs://, abfs:// or hdfs://, by "
    "the file systems of pyarrow, or http:// and https:// for one file to be brought here. Accounts are those of the "
    "environment, as pyarrow takes them; options of a store follow a \"?\", such as "
    "s3://BUCKET/KEY?region=eu-west-1.\n\n"
    "A file comes to its name only when it is whole. One that is there with the same size, and is not older, is left "
    "alone. A file of an http server that does not say its time is always copied.";

// Refuses a URL of a store that pyarrow has no file system for, before a Python is asked.
void check_scheme(const std::string& url) {
  const std::string scheme = url.substr(0, url.find("://"));
  for (const char* known : {"s3", "gs", "gcs", "abfs", "abfss", "http", "https", "hdfs", "viewfs", "file"}) {
    if (scheme != known) continue;
    // Only the last three have a default host.
    const std::string rest = url.substr(scheme.size() + 3), host = rest.substr(0, rest.find_first_of("/?"));
    const bool needed = scheme != "hdfs" && scheme != "viewfs" && scheme != "file";
    if (rest.empty() || (needed && host.empty()))
      throw UsageError(url + " names no place in a store: give a bucket or host, as in s3://bucket/data");
    return;
  }
  throw UsageError(str_cat(scheme, ":// is no store that copy knows: give s3://, gs://, abfs://, hdfs:// or https://"));
}

}  // namespace

int copy_command(const std::vector<std::string>& args) {
  std::string from, to, python = "python3";
  bool again = false;
  Options options("copy", "FROM TO [OPTIONS]", kAboutCopying);
  auto add = options.add_options();
  add("again", po::bool_switch(&again), "also copy files that are there already");
  add("python", po::value(&python)->value_name("PROGRAM")->default_value(python), "a Python that has pyarrow");
  options.argument("from", po::value(&from));
  options.argument("to", po::value(&to));
  if (!parse_options(args, options)) return 0;
  if (from.empty() || to.empty()) throw UsageError("FROM and TO are needed: tessera copy s3://bucket/data data");
  if (sdk::is_url(from) == sdk::is_url(to))
    throw UsageError(sdk::is_url(from)
                         ? "FROM and TO are both URLs: copy to this machine first, and then from it"
                         : "neither FROM nor TO is a URL, such as s3://bucket/data: cp copies local files");
  check_scheme(sdk::is_url(from) ? from : to);
  if (to.starts_with("http://") || to.starts_with("https://"))
    throw UsageError("TO is " + to + ", but http takes no files: give s3://, gs://, abfs:// or hdfs://");
  std::vector<std::string> words = {python, "-c", kCopyScript, from, to, again ? "1" : "0"};
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  std::cout.flush();
  execvp(python.c_str(), raw.data());
  throw UsageError("copy runs in Python, and \"" + python + "\" cannot be started: " + system_error());
}

}  // namespace tessera::cli
